// The OpenAI wire form: request bodies into native types at once, and errors; replies are
// openai_reply.h. Shared by workers (which answer) and the router (errors). vLLM's extensions are
// understood: token-id prompts, return_token_ids, kv_transfer_params, top_k, min_p,
// repetition_penalty, ignore_eos, min_tokens, stop_token_ids, guided/structured output. Unknown
// fields are ignored, as OpenAI and vLLM do; wrong types and ranges are refused naming the field.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"

namespace pdjob::net {

// An error as the client sees it: HTTP status and OpenAI's body.
struct ApiError {
  int status = 500;
  std::string type;  // "invalid_request_error", "overloaded_error", "server_error", ...
  std::string message;
  std::string param;  // Empty: null.
  std::string code;   // Empty: null.
};
// The one table from our reactions to HTTP.
ApiError to_api_error(const Error& error);
// The client's mistake; `param` is the field at fault.
ApiError invalid_request(std::string message, std::string param = "", std::string code = "",
                         int status = 400);
std::string error_body(const ApiError& error);

enum class ApiKind { kChat, kCompletion };

// The sender's or receiver's half of a KV hand-over, out of kv_transfer_params (vLLM's two-hop
// fields plus pdjob's transfer_id).
struct KvTransferParams {
  bool do_remote_decode = false;   // "Prefill this, and keep the KV for somebody."
  bool do_remote_prefill = false;  // "The KV of this prompt is at ..."
  std::optional<TransferId> transfer;
  std::string remote_engine_id;
  std::string remote_host;
  uint16_t remote_port = 0;
  std::string remote_unix_path;
  std::string remote_host_id;
  std::string remote_gpu_path;
};

// SGLang's way of saying the same to both workers at once: the room is what they have in common.
struct BootstrapParams {
  std::string host;   // Of the prefill worker's bootstrap server.
  uint16_t port = 0;  // 0: none was named.
  uint64_t room = 0;
};

struct ApiMessage {
  std::string role;
  std::string content;
};

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  std::string model;                              // Empty: the only one.
  std::vector<ApiMessage> messages;               // Chat.
  std::vector<std::string> prompts;               // Completions, as text ...
  std::vector<std::vector<Token>> token_prompts;  // ... or as token ids; one of the two is filled.
  SamplingParams sampling;
  bool seeded = false;  // The client gave a seed.
  StopParams stop;
  bool max_tokens_given = false;
  uint32_t choices = 1;    // `n`
  std::string cache_salt;  // Not empty: its prompt shares KV with no other.
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool tokens_as_ids =
      false;  // Tokens in logprobs are written "token_id:17" (vLLM's return_tokens_as_token_ids).
  std::optional<KvTransferParams> kv_transfer;
  std::optional<BootstrapParams> bootstrap;  // Instead of it.
  // Of a stream that began at another worker and goes on here, as the router says it: the tokens of
  // each choice so far, n for each prompt; lists may be empty. What is replied comes after them.
  std::vector<std::vector<Token>> resumed;
};

// The error names the field at fault.
std::variant<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string_view body);

}  // namespace pdjob::net
