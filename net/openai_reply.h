// Replies in OpenAI's wire form, appended to a string out of native types: whole ones, and streams
// as server-sent events. With vLLM's extensions: token ids, kv_transfer_params.
//
//   ReplyWriter writer({.kind = request.kind, .id = "7f3a", .model = "m", ...}, piece);
//   writer.append_part(out, {.choice = 0, .text = "Hel", .tokens = tokens});   // once per step and
//   choice writer.append_end(out, usage);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "net/openai.h"

namespace pdjob::net {

class JsonWriter;

struct ReplyOptions {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;  // Without "chatcmpl-" or "cmpl-", which are added.
  std::string model;
  int64_t created = 0;   // Seconds since 1970.
  uint32_t choices = 1;  // All of them: n times prompts.
  bool logprobs = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool include_usage = false;  // In a stream; a whole reply always has it.
};
// What the request says of its reply.
ReplyOptions reply_options(const ApiRequest& request);

// What is new of one choice or, in a whole reply, all of it.
struct ReplyPart {
  uint32_t choice = 0;
  std::string_view text;  // With echo, the prompt's comes before that of the first part.
  std::span<const GeneratedToken> tokens;  // Looked at only for logprobs and token ids.
  FinishReason finish = FinishReason::kNone;
  std::span<const Token>
      prompt;  // Of the choice; looked at only in its first part, for prompt_token_ids.
};

struct Usage {
  uint64_t prompt_tokens = 0;      // Each prompt once, whatever n is.
  uint64_t cached_tokens = 0;      // Those of them that were not computed; said if there are any.
  uint64_t completion_tokens = 0;  // Of all choices.
};

// Writes the reply to one request; what is the same in all its events is rendered once. Nothing is
// allocated per token but what `out` grows by. Value.
class ReplyWriter {
 public:
  // Appends the bytes of a token: they need not be whole characters.
  using AppendPiece = std::function<void(Token, std::string&)>;

  ReplyWriter(ReplyOptions options, AppendPiece append_piece);

  // A stream: parts of its choices in any order, then the end. A part that shows nothing appends
  // nothing. The first part of a chat's choice is preceded by the event that names the role.
  void append_part(std::string& out, const ReplyPart& part);
  void append_end(std::string& out, const Usage& usage);

  // A whole reply. `parts` holds every choice once, in order. `kv_transfer_params` is JSON; empty:
  // null.
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params);

 private:
  // Of one choice, between its parts.
  struct ChoiceState {
    bool started = false;
    uint64_t characters = 0;  // Of the tokens so far: the next text_offset.
  };

  void append_role_event(std::string& out, const ReplyPart& part);
  void append_choice(JsonWriter& json, const ReplyPart& part, std::string_view message_name);
  void append_chat_logprobs(JsonWriter& json, const ReplyPart& part);
  void append_chat_logprob(JsonWriter& json, Token token, float logprob);
  void append_completion_logprobs(JsonWriter& json, const ReplyPart& part);
  // What logprobs call the token. Valid until the next call.
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

// Ends the events of a stream that failed after it began; append_done() may follow.
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

}  // namespace pdjob::net
