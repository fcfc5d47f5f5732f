// Replies in OpenAI's wire format, appended to a string: whole ones, and streams as server-sent
// events. With vLLM's extensions: token ids, kv_transfer_params.
//
//   ReplyWriter writer({.kind = request.kind, .id = "7f3a", .model = "m", ...}, piece);
//   writer.append_part(out, {.choice = 0, .text = "Hel", .tokens = tokens});  // per step, choice
//   writer.append_end(out, usage);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "openai/openai.h"

namespace pdjob {
class JsonWriter;
}

namespace pdjob::openai {

struct ReplyOptions {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;  // Without "chatcmpl-" or "cmpl-", which are added.
  std::string model;
  int64_t created = 0;   // Seconds since 1970.
  uint32_t choices = 1;  // n times the number of prompts.
  bool logprobs = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool include_usage = false;  // In a stream; a whole reply always has it.
};
// Takes the reply's options from the request.
ReplyOptions reply_options(const ApiRequest& request);

// The new output of one choice or, in a whole reply, all its output.
struct ReplyPart {
  uint32_t choice = 0;
  std::string_view text;  // With echo, the first part begins with the prompt's text.
  std::span<const GeneratedToken> tokens;  // Used only for logprobs and token ids.
  FinishReason finish = FinishReason::kNone;
  std::span<const Token>
      prompt;  // The choice's prompt; used only in its first part, for prompt_token_ids.
};

struct Usage {
  uint64_t prompt_tokens = 0;      // Each prompt counts once, whatever n is.
  uint64_t cached_tokens = 0;      // Prompt tokens that were not computed; reported unless 0.
  uint64_t completion_tokens = 0;  // Sum over all choices.
};

// Writes the reply to one request. It renders the constant part of all events once. Per token it
// allocates only the growth of `out`. Value.
class ReplyWriter {
 public:
  // Appends the bytes of a token, which may be a part of a character.
  using AppendPiece = std::function<void(Token, std::string&)>;

  ReplyWriter(ReplyOptions options, AppendPiece append_piece);

  // A stream: parts of its choices in any order, then the end. An empty part appends nothing. In a
  // chat, an event with the role precedes the first part of each choice.
  void append_part(std::string& out, const ReplyPart& part);
  void append_end(std::string& out, const Usage& usage);

  // A whole reply. `parts` holds every choice once, in order. `kv_transfer_params` is JSON; empty:
  // null.
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params);

 private:
  // State of one choice between its parts.
  struct ChoiceState {
    bool started = false;
    uint64_t characters = 0;  // In the tokens so far: the next text_offset.
  };

  void append_role_event(std::string& out, const ReplyPart& part);
  void append_choice(JsonWriter& json, const ReplyPart& part, std::string_view message_name);
  void append_chat_logprobs(JsonWriter& json, const ReplyPart& part);
  void append_chat_logprob(JsonWriter& json, Token token, float logprob);
  void append_completion_logprobs(JsonWriter& json, const ReplyPart& part);
  // The name of the token in logprobs. Valid until the next call.
  std::string_view name_of(Token token);
  std::string_view piece_of(Token token);

  ReplyOptions options_;
  AppendPiece append_piece_;
  std::string event_begin_;  // Up to the choices' bracket.
  std::string_view event_end_;
  std::string piece_;
  std::string name_;
  std::vector<ChoiceState> choices_;
};

// Reports that a stream failed after it began; append_done() may follow.
void append_error_event(std::string& out, const ApiError& error);
// data: [DONE]
void append_done(std::string& out);

// The reply to GET /v1/models.
struct ModelCard {
  std::string_view id;
  int64_t created = 0;
  uint32_t context_max = 0;  // Tokens of prompt and output; vLLM's max_model_len.
};
std::string models_body(std::span<const ModelCard> models);

}  // namespace pdjob::openai
