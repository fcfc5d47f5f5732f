// SGLang's own POST /generate (sglang 0.5.23): its body, and its reply.
//
// A request takes `input_ids` or `text`, and sampling_params. Unknown fields are ignored, as SGLang
// does. A field that pdjob lacks is refused where its value would change the reply.
//
// A reply is one object, or a list of them for several choices. Streams are cumulative: each event
// of a choice has all its output so far. A choice's output_ids have its end token or stop token,
// and so do its logprobs. Logprobs are [logprob, token, text or null], written as doubles: they
// read back as the same float.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/openai.h"
#include "openai/openai_fields.h"
#include "openai/openai_reply.h"

namespace pdjob::openai {

// Reads all fields but those of the hand-over, which all forms share. Pure.
void read_sglang_request(const Fields& fields, ApiRequest& request);

// Keeps the rendered output of each choice, so that an event copies bytes, and renders only what is
// new. Value.
class SglangReplyWriter final : public ReplyForm {
 public:
  SglangReplyWriter(ReplyOptions options, AppendPiece append_piece);

  void append_part(std::string& out, const ReplyPart& part) override;
  void append_end(std::string& out, const Usage& usage) override;
  // `kv_transfer_params`: a prefill worker's reply to a router, which is one object.
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params) override;

 private:
  // JSON without its quotes or brackets.
  struct ChoiceOutput {
    std::string text;
    std::string ids;
    std::string logprobs;
    std::string alternatives;
    uint64_t tokens = 0;
  };

  // True if the reply is a list, and an event says which item it is.
  bool listed() const { return options_.list || options_.choices > 1; }
  void take(const ReplyPart& part);
  // The first token of a prompt has none.
  void append_logprob(std::string& out, Token token, std::optional<float> logprob);
  // The prompt's tokens from logprob_start on, and with alternatives theirs.
  void append_input(std::string& out, JsonWriter& json, const ReplyPart& part);
  void append_choice(std::string& out, const ReplyPart& part, std::string_view kv_transfer_params);
  // `json` writes to `out`.
  void append_meta(std::string& out, JsonWriter& json, const ReplyPart& part);
  std::string id_of(uint32_t choice) const;

  const ReplyOptions options_;
  const AppendPiece append_piece_;
  std::vector<ChoiceOutput> choices_;
  std::string piece_;
};

}  // namespace pdjob::openai
