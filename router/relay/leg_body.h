// The body of a request, scanned once: the facts that the router needs, and the bodies of both
// legs, made by splicing. Unknown fields pass unchanged, byte for byte. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "openai/json/json_edit.h"
#include "openai/openai.h"
#include "router/core/kv_words.h"

namespace pdjob::router {

// Which names the members have.
enum class BodyForm : uint8_t {
  kOpenai,
  kSglang,     // POST /generate.
  kTokens,     // vLLM's POST /inference/v1/generate.
  kEmbedding,  // POST /v1/embeddings.
  kResponses,  // POST /v1/responses.
  kPassed,     // Of a path that pdjob does not know (net::WorkerEntry::routes).
};
BodyForm form_of(std::string_view path);
openai::ApiKind kind_of(std::string_view path);

// The members of such a body that the router reads, and those that it writes or removes itself.
struct RouterMembers {
  std::vector<std::string_view> read;
  std::vector<std::string_view> written;
};
RouterMembers router_members(BodyForm form);

class RequestBody {
 public:
  // Returns a 400 unless `text` is one JSON object with integer limits.
  static Result<RequestBody, openai::ApiError> scan(std::string text,
                                                    BodyForm form = BodyForm::kOpenai);
  // A body of a path that pdjob does not know. Only its model is read: a member of a JSON object,
  // or a field of a form. Returns a 400 unless it is what `content_type` says; other types than
  // these two pass unread.
  static Result<RequestBody, openai::ApiError> pass(std::string text,
                                                    std::string_view content_type);

  const std::string& model() const { return model_; }  // Empty: not named.
  // All prompts. An estimate: about four bytes of text make a token; token ids are counted.
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  // The limit for one choice of one prompt.
  uint64_t output_tokens() const { return output_tokens_; }
  // Logprobs of its prompts are asked (`echo` with `logprobs`): one worker must compute all of
  // them.
  bool scores_prompt() const;
  bool embeds() const { return form_ == BodyForm::kEmbedding; }
  bool passes() const { return form_ == BodyForm::kPassed; }
  // It reads its prompts, and generates at most one token: there is nothing to decode.
  bool prompt_only() const { return embeds() || (scores_prompt() && output_tokens_ <= 1); }
  // The maximal cost: all prompts, and the limits of all their choices.
  uint64_t tokens() const { return prompt_tokens_ + prompts_ * choices_ * output_tokens_; }
  // As the client wrote it: the value of `prompt` or `messages`, or of `user`, or of what this form
  // has in their place. Empty: it has none.
  std::string_view prompt() const;
  std::string_view user() const;
  // The other members that decide the prompt's tokens and its KV: tools, a template, a salt. Empty:
  // none.
  std::string shape() const;
  // True if an engine can tokenize the prompt, and the tokens alone decide its KV.
  bool tokenizable() const;
  // Not made by scan(), or freed since. The other functions then must not be called.
  bool is_empty() const { return text_ == nullptr; }
  const std::string& text() const { return *text_; }
  bool stream() const { return !embeds() && object_->value("stream") == "true"; }
  // OpenAI's `service_tier` is "flex": it takes what other requests leave.
  bool is_flex() const;
  // The client's own names of its prompts, one for each, or none.
  std::vector<std::string> rids() const;
  // True if its tokens suffice to go on with its stream at another worker. A cumulative stream
  // repeats the logprobs, which that worker cannot know.
  bool resumable() const;
  // `prompt` is a list of prompts; each would need its own hand-over.
  bool several_prompts() const { return prompts_ > 1; }

  // The prefill leg's body: one token, not streamed, with the KV members, and this `priority` in
  // place of the client's; empty: the client's.
  std::string prefill_leg(const KvWords& kv, std::string_view priority = {}) const;
  // A decode leg asks this beyond the request: pdjob_resume, pdjob_resume_weights and
  // pdjob_resume_model (of ToldTokens), token ids with each event, and a priority as above.
  struct More {
    std::string_view resume = {};
    std::string_view weights = {};
    std::string_view model = {};
    std::string_view priority = {};
    bool token_ids = false;
    bool keeps_resume = false;  // The client's own, in place of these three.
  };
  // The decode leg's body: the client's body with the KV members and these. It has none of them
  // whose value is empty here, even if the client wrote one.
  std::string decode_leg(const KvWords& kv, const More& more) const;
  std::string decode_leg(const KvWords& kv) const { return decode_leg(kv, {}); }

 private:
  Result<Done, openai::ApiError> read_limits(const openai::JsonObject& object);
  Result<Done, openai::ApiError> read_inner_limits(const openai::JsonObject& object);

  // On the heap, so that the scan's views of it stay valid when the body moves.
  std::unique_ptr<const std::string> text_;
  std::optional<openai::JsonObject> object_;
  BodyForm form_ = BodyForm::kOpenai;
  bool unread_ = false;  // It is no JSON object: `object_` is an empty one.
  std::string model_;
  uint64_t prompt_tokens_ = 0;
  uint64_t output_tokens_ = 0;
  uint64_t prompts_ = 1;
  uint64_t choices_ = 1;
};

}  // namespace pdjob::router
