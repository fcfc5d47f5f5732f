// OpenAI's wire format: parses request bodies into native types, and writes errors; replies are in
// openai_reply.h. The Responses API, and SGLang's and vLLM's own routes, become the same native
// types (responses.h, sglang.h, tokens_request.h). Workers use
// it to answer, the router for errors. It supports vLLM's extensions: token-id prompts,
// return_token_ids, kv_transfer_params, top_k, min_p, repetition_penalty, ignore_eos, min_tokens,
// stop_token_ids, guided/structured output. It refuses wrong types and ranges, and names the field.
// Fields of other servers that it lacks are refused, too, or have no effect (unserved_fields.cc).
// It ignores unknown fields, as OpenAI and vLLM do. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"

namespace pdjob::openai {

struct KnownField;  // openai_fields.h

// An error as the client sees it: HTTP status and OpenAI's body.
struct ApiError {
  int status = 500;
  std::string type;  // "invalid_request_error", "overloaded_error", "server_error", ...
  std::string message;
  std::string param;  // Empty: null.
  std::string code;   // Empty: null.
};
// The only mapping of error codes to HTTP.
ApiError to_api_error(const Error& error);
// A mistake of the client; `param` is the wrong field.
ApiError invalid_request(std::string message, std::string param = "", std::string code = "",
                         int status = 400);
std::string error_body(const ApiError& error);

enum class ApiKind {
  kChat,
  kCompletion,
  kSglang,  // SGLang's own POST /generate.
  kTokens,  // vLLM's POST /inference/v1/generate.
  kEmbedding,
  kResponses,  // OpenAI's POST /v1/responses.
};
// Its prompt is a conversation.
inline bool is_chat(ApiKind kind) { return kind == ApiKind::kChat || kind == ApiKind::kResponses; }

// One worker's half of a KV hand-over, from kv_transfer_params (vLLM's two-hop fields plus pdjob's
// transfer_id).
struct KvTransferParams {
  bool do_remote_decode = false;   // "Prefill this, and keep the KV for another worker."
  bool do_remote_prefill = false;  // "The KV of this prompt is at ..."
  std::optional<TransferId> transfer;
  std::string remote_engine_id;
  std::string remote_host;
  uint16_t remote_port = 0;
  std::string remote_unix_path;
  std::string remote_host_id;
  std::string remote_gpu_path;
};

// SGLang's form, sent to both workers at once; they share the room.
struct BootstrapParams {
  std::string host;   // The prefill worker's bootstrap server.
  uint16_t port = 0;  // 0: not given.
  uint64_t room = 0;
};

struct ApiToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, as a model wrote it.
};
struct ApiMessage {
  std::string role;
  std::string content;
  std::string reasoning = {};                // Of an assistant: its thoughts before the content.
  std::vector<ApiToolCall> tool_calls = {};  // The same.
  std::string tool_call_id = {};             // Of role "tool": the call that it answers, ...
  std::string tool_name = {};                // ... and the name of its tool, if known.
};

// How a chat's template is filled.
struct ApiTemplate {
  std::vector<std::pair<std::string, std::string>> values = {};  // A name, and its value as JSON.
  bool opens_turn = true;       // The assistant's turn is opened behind the messages.
  bool continues_last = false;  // The output goes on with the last message.
};

// A function that the model may call.
struct ApiTool {
  std::string name;
  std::string description;
  std::string parameters;  // The JSON schema of its arguments, an object.
  bool strict = false;     // Refuse parameters that cannot be held; otherwise hold what can be.
};

// Tokens [start, end) of a choice's output were made with weights of this version.
struct WeightSpan {
  std::string version;
  uint64_t start = 0;
  uint64_t end = 0;
  friend bool operator==(const WeightSpan&, const WeightSpan&) = default;
};

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  std::string model;                   // Empty: the only model.
  std::vector<ApiMessage> messages;    // Chat.
  ApiTemplate chat_template;           // Chat.
  std::vector<ApiTool> tools;          // Chat; empty: the model calls none.
  std::vector<size_t> callable_tools;  // Those that it may call; empty: all.
  bool must_call_tool = false;
  bool legacy_functions = false;     // The tools came as `functions`, and so do calls of them.
  bool parallel_tool_calls = true;   // It may make several calls.
  std::vector<std::string> prompts;  // Completions, as text ...
  std::vector<std::vector<Token>> token_prompts;  // ... or as token ids; one of the two is filled.
  SamplingParams sampling;
  bool seeded = false;  // The client gave a seed.
  StopParams stop;
  bool fills_context = false;  // Up to the context's end; stop.max_tokens does not count.
  uint32_t choices = 1;        // `n`
  std::string cache_salt;      // Not empty: its prompt shares KV with no other.
  // Only for kEmbedding:
  uint32_t dimensions = 0;  // Keep only so many of each embedding; 0: all.
  bool base64 = false;      // The form of embeddings in the reply; false: a list of numbers.
  bool echo = false;
  // Only for kSglang: logprobs of the prompt's tokens behind this one are asked, too.
  std::optional<uint32_t> logprob_start;
  // Logprobs of the prompt's tokens are asked, too.
  bool scores_prompt() const { return (echo && sampling.logprobs >= 0) || logprob_start; }
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool return_weight_versions = false;  // Without token ids, which have them anyway.
  bool prompts_listed = false;          // The prompts came as a list, even if it has one.
  // Only for kSglang and kTokens: names of its prompts, one for each, or none.
  std::vector<std::string> rids;
  bool text_in_logprobs = false;  // Only for kSglang.
  // Only for kResponses: members of the reply that repeat the request, as JSON without brackets.
  std::string response_settings;
  bool tokens_as_ids =
      false;  // Writes tokens in logprobs as "token_id:17" (vLLM's return_tokens_as_token_ids).
  std::optional<KvTransferParams> kv_transfer;
  std::optional<BootstrapParams> bootstrap;  // In place of kv_transfer.
  // For a reply that another worker began: the tokens of each choice so far. There are n lists per
  // prompt; lists may be empty. The reply continues after them.
  std::vector<std::vector<Token>> resumed;
  // The weights that made them: spans over each choice's tokens. Empty: the router does not know.
  // pdjob_resume_weights has versions in hexadecimal.
  std::vector<std::vector<WeightSpan>> resumed_weights;
  // The model that they mean something to (ToldTokens::model_json()); empty: this one.
  std::string resumed_model;
};

// The error names the wrong field.
Result<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string_view body,
                                               std::vector<KnownField>* known = nullptr);

}  // namespace pdjob::openai
