// Replies in OpenAI's wire format, appended to a string: whole ones, and streams as server-sent
// events. With vLLM's extensions: token ids, kv_transfer_params. SGLang's form is in
// sglang.h, that of the Responses API in responses.h.
//
//   auto reply = reply_form({.kind = request.kind, .id = "7f3a", .model = "m", ...}, piece);
//   reply->append_part(out, {.choice = 0, .text = "Hel", .tokens = tokens});  // per step, choice
//   reply->append_end(out, usage);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/generation.h"
#include "common/result.h"
#include "openai/openai.h"

namespace pdjob {
class JsonWriter;
}

namespace pdjob::openai {

// A part of a call of a tool.
struct ToolCallPart {
  uint32_t index = 0;  // Among the calls of its choice.
  std::string id;      // This and the name are only in a call's first part.
  std::string name;
  std::string arguments;  // JSON; a stream has it in parts.
};

struct ReplyOptions {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;                 // Without "chatcmpl-" or "cmpl-", which are added.
  std::vector<std::string> rids;  // ApiRequest::rids.
  std::string model;
  int64_t created = 0;   // Seconds since 1970.
  uint32_t choices = 1;  // n times the number of prompts.
  uint32_t choices_per_prompt = 1;
  bool list = false;  // SGLang's form: a reply of one choice is a list, too.
  bool logprobs = false;
  bool alternatives = false;      // SGLang's form: with the other likely tokens.
  bool text_in_logprobs = false;  // The same.
  bool return_token_ids = false;
  bool return_weight_versions = false;
  bool tokens_as_ids = false;
  bool include_usage = false;     // In a stream; a whole reply always has it.
  bool continuous_usage = false;  // In a stream: each event has the usage of its choice so far.
  uint32_t dimensions = 0;        // ApiRequest::dimensions, and the next one.
  bool base64 = false;
  bool tools = false;             // The reply may have calls of tools: only then is content null.
  bool legacy_functions = false;  // ApiRequest::legacy_functions, and the next one.
  std::optional<uint32_t> logprob_start = {};
  std::string response_settings;  // ApiRequest::response_settings.
};
// Takes the reply's options from the request.
ReplyOptions reply_options(const ApiRequest& request);

// The new output of one choice or, in a whole reply, all its output.
struct ReplyPart {
  uint32_t choice = 0;
  std::string_view text;  // With echo, the first part begins with the prompt's text.
  std::span<const GeneratedToken> tokens;  // Used only for logprobs and token ids.
  FinishReason finish = FinishReason::kNone;
  // The choice's prompt; used only in its first part, for prompt_token_ids and echoed logprobs.
  std::span<const Token> prompt;
  const PromptLogprobs* prompt_logprobs = nullptr;  // The same; null: they are not asked.
  // The rest is for replies with token ids, continuous usage, and SGLang's form.
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t completion_tokens = 0;            // Of the choice so far.
  double seconds = 0;                        // Since the request arrived.
  std::optional<Token> stop_token;           // What ended the choice: this token, ...
  std::string_view stop_string;              // ... or this string.
  std::string_view weight_version = {};      // Of the model now.
  std::span<const WeightSpan> weights = {};  // Of the whole output so far.
  std::span<const ToolCallPart> calls = {};  // In a whole reply, one for each call.
  std::span<const float> embedding = {};     // Only in replies with embeddings.
  bool ends_in_calls = false;                // Then a stop is reported as "tool_calls".
};

struct Usage {
  uint64_t prompt_tokens = 0;      // Each prompt counts once, whatever n is.
  uint64_t cached_tokens = 0;      // Prompt tokens that a worker had computed before.
  uint64_t completion_tokens = 0;  // Sum over all choices.
  int64_t ended = 0;               // When the reply did, in seconds since 1970.
};

// Appends the bytes of a token, which may be a part of a character.
using AppendPiece = std::function<void(Token, std::string&)>;

// Names tokens in logprobs. Value.
class TokenNames {
 public:
  // `as_ids`: as "token_id:17".
  TokenNames(AppendPiece append_piece, bool as_ids)
      : append_piece_(std::move(append_piece)), as_ids_(as_ids) {}

  // Valid until the next call.
  std::string_view name_of(Token token);
  std::string_view id_name(Token token);
  std::string_view piece_of(Token token);
  // A generated token with its logprob and its alternatives `top`, as chats and responses have it.
  void append_logprobs(JsonWriter& json, const GeneratedToken& token,
                       std::span<const TokenLogprob> top);

 private:
  void append_logprob(JsonWriter& json, Token token, float logprob);

  AppendPiece append_piece_;
  bool as_ids_;
  std::string piece_;
  std::string name_;
};

// Writes the reply to one request, in the request's form. It is either a stream or whole. Value.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;

  // A stream: parts of its choices in any order, then the end. An empty part appends nothing.
  virtual void append_part(std::string& out, const ReplyPart& part) = 0;
  virtual void append_end(std::string& out, const Usage& usage) = 0;
  // In place of the end: the stream fails.
  virtual void append_error(std::string& out, const ApiError& error);

  // A whole reply. `parts` holds every choice once, in order. `kv_transfer_params` is JSON; empty:
  // none.
  virtual void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                            std::string_view kv_transfer_params) = 0;
};
std::unique_ptr<ReplyForm> reply_form(ReplyOptions options, AppendPiece append_piece);
// The body of the reply to a request that was aborted before its first token. `options`: those of
// the request. `part` has what its choices have in common.
std::string aborted_reply(const ApiRequest& request, const ReplyOptions& options,
                          const ReplyPart& part);

// OpenAI's form. It renders the constant part of all events once. Per token it allocates only the
// growth of `out`. In a chat, an event with the role precedes the first part of each choice. Value.
class ReplyWriter final : public ReplyForm {
 public:
  ReplyWriter(ReplyOptions options, AppendPiece append_piece);

  void append_part(std::string& out, const ReplyPart& part) override;
  void append_end(std::string& out, const Usage& usage) override;
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params) override;

 private:
  // State of one choice between its parts.
  struct ChoiceState {
    bool started = false;
    uint64_t characters = 0;  // In the tokens so far: the next text_offset.
  };

  bool shows_ids() const { return options_.return_token_ids || options_.kind == ApiKind::kTokens; }
  void append_role_event(std::string& out, const ReplyPart& part);
  // After the choices' bracket. `completion_tokens`: of the choice, including those of this event.
  void end_event(std::string& out, const ReplyPart& part, uint64_t completion_tokens) const;
  void append_choice(JsonWriter& json, const ReplyPart& part, std::string_view message_name);
  void append_message(JsonWriter& json, const ReplyPart& part, bool whole) const;
  void append_chat_logprobs(JsonWriter& json, const ReplyPart& part);
  // A token with its logprobs, of the prompt or of the output.
  struct Scored {
    Token token = 0;
    std::optional<float> logprob;  // The first one of a prompt has none.
    std::span<const TokenLogprob> top;
  };
  void append_completion_logprobs(JsonWriter& json, const ReplyPart& part);
  void append_top(JsonWriter& json, const Scored& scored);
  void append_top_key(JsonWriter& json, Token token);

  ReplyOptions options_;
  TokenNames names_;
  std::string event_begin_;  // Up to the choices' bracket.
  std::string_view event_end_;
  // The keys of one object of top_logprobs: as JSON, one after the other, and where each ends.
  std::string keys_;
  std::vector<size_t> key_ends_;
  std::vector<ChoiceState> choices_;
};

// The members weight_version and weight_versions.
void append_weight_versions(JsonWriter& json, const ReplyPart& part);
// JSON has no infinity and no NaN. Replaces -inf and NaN by a very low logprob.
float finite_logprob(float logprob);

// Reports that a stream failed after it began; append_done() may follow.
void append_error_event(std::string& out, const ApiError& error);
// data: [DONE]
void append_done(std::string& out);

// The replies to GET /v1/models and /v1/models/ID.
struct ModelCard {
  std::string id;
  int64_t created = 0;       // Seconds since 1970.
  uint32_t context_max = 0;  // Tokens of prompt and output, vLLM's max_model_len; 0: unknown.
  std::string parent = {};   // Of an adapter: the model that it changes.
};
std::string models_body(std::span<const ModelCard> models);
inline constexpr std::string_view kModelPath = "/v1/models/";
// Of a path. A '%' that no two hexadecimal digits follow stands for itself.
std::string percent_decoded(std::string_view encoded);
// `encoded` is what follows kModelPath: clients percent-encode an id.
Result<std::string, ApiError> model_body(std::span<const ModelCard> models,
                                         std::string_view encoded);

// Without a charset, some clients read a text of any other type than JSON as ISO-8859-1.
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
// Proxies that follow nginx pass a reply with this header on as it comes.
inline constexpr std::pair<const char*, const char*> kUnbuffered = {"X-Accel-Buffering", "no"};

}  // namespace pdjob::openai
