// OpenAI's Responses API: POST /v1/responses becomes the same native request as a chat, and the
// reply has that API's form. Nothing is stored, so each request has its whole conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/openai.h"
#include "openai/openai_fields.h"
#include "openai/openai_reply.h"

namespace pdjob {
class JsonWriter;
}

namespace pdjob::openai {

// Tools and instructions that a reply repeats, and a schema. The first chunk of a stream has them
// twice, and must not be larger than a router records.
inline constexpr size_t kRepeatedBytesMax = size_t{128} * 1024;

void read_responses_request(const Fields& fields, ApiRequest& request);

// A reply is a list of items: messages and calls of functions. A stream numbers its events from 0.
// All of it follows from the request's id and tokens, so a worker that continues a stream makes the
// same events. It has one choice. Value.
class ResponsesReplyWriter final : public ReplyForm {
 public:
  ResponsesReplyWriter(ReplyOptions options, AppendPiece append_piece);

  void append_part(std::string& out, const ReplyPart& part) override;
  void append_end(std::string& out, const Usage& usage) override;
  void append_error(std::string& out, const ApiError& error) override;
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params) override;

 private:
  struct Item {
    bool is_call = false;
    std::string id;
    std::string call_id;  // Only of a call, and so is the name.
    std::string name;
    std::string text;      // Of a message; or the arguments.
    std::string logprobs;  // JSON without its brackets. A stream has them in its deltas alone: a
                           // worker that continues it does not know the earlier ones.
  };
  // What an object of the response says beside its items.
  struct Ending {
    std::string_view status;
    const Usage* usage = nullptr;     // Null: not known yet.
    const ApiError* error = nullptr;  // Null: none.
  };

  void append_text(std::string& out, std::string_view text);
  void append_call(std::string& out, const ToolCallPart& call);
  void note_logprobs(const ReplyPart& part);
  Item& add_item(const ToolCallPart* call);
  // Opens an item of the stream. Closes the one before.
  Item& open_item(std::string& out, const ToolCallPart* call);
  void close_item(std::string& out, std::string_view status);
  // The events before the first item, once.
  void begin(std::string& out);
  void append_response_event(std::string& out, std::string_view type, const Ending& ending);

  JsonWriter begin_event(std::string& out, std::string_view type);
  // The same, with the fields that name the last item.
  JsonWriter begin_item_event(std::string& out, std::string_view type);
  // The event that opens or closes the last item.
  void append_item_event(std::string& out, std::string_view type, std::string_view status);

  std::string_view status() const;
  // Of an item of the whole reply.
  std::string_view status_of(const Item& item) const;
  void append_response(JsonWriter& json, const Ending& ending) const;
  static void append_item(JsonWriter& json, const Item& item, std::string_view status);
  static void append_text_part(JsonWriter& json, const Item& item);

  const ReplyOptions options_;
  TokenNames names_;
  std::vector<Item> items_;
  std::string logprobs_;  // Of tokens whose text is to come.
  uint64_t sequence_ = 0;
  bool open_ = false;  // The last item is.
  FinishReason finish_ = FinishReason::kNone;
  bool ends_in_calls_ = false;
};

}  // namespace pdjob::openai
