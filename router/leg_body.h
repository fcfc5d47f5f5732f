// The body of a request, scanned once: what the router must know of it, and the bodies of both
// legs, made by splicing. Fields that the router does not know pass as they are, byte for byte.
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "net/json_edit.h"
#include "net/openai.h"
#include "router/kv_words.h"

namespace pdjob::router {

class RequestBody {
 public:
  // 400 unless `text` is one JSON object whose limits are integers.
  static std::variant<RequestBody, net::ApiError> scan(std::string text);

  const std::string& model() const { return model_; }  // Empty: not named.
  // Of all prompts. An estimate: about four bytes of text make a token; token ids are counted.
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  // The most that one choice of one prompt may get.
  uint64_t output_tokens() const { return output_tokens_; }
  // What the request may cost: all prompts, and the most that all their choices may get.
  uint64_t tokens() const { return prompt_tokens_ + prompts_ * choices_ * output_tokens_; }
  // As the client wrote it: the value of `prompt` or `messages`, and of `user`; empty: none.
  std::string_view prompt() const;
  std::string_view user() const { return object_->value("user"); }
  // What else of the body decides which tokens the prompt is made of, and which KV: tools, a
  // template, a salt. Empty: nothing.
  std::string shape() const;
  // An engine can be asked for its tokens, and they alone say which KV it needs.
  bool tokenizable() const;
  // Not made by scan(), or freed since. Of such a body nothing else may be asked.
  bool is_empty() const { return text_ == nullptr; }
  const std::string& text() const { return *text_; }
  bool stream() const { return object_->value("stream") == "true"; }
  // `prompt` is a list of prompts: each would need a hand-over of its own.
  bool several_prompts() const { return prompts_ > 1; }

  // One token, not streamed, and what is said of the KV.
  std::string prefill_leg(const KvWords& kv) const;
  // The client's body with what is said of the KV, and pdjob_resume (StreamRecord::tokens_json);
  // empty: without, whatever the client wrote there.
  std::string decode_leg(const KvWords& kv, std::string_view resume = {}) const;

 private:
  // Where it is does not change when the body moves, as the scan has views of it.
  std::unique_ptr<const std::string> text_;
  std::optional<net::JsonObject> object_;
  std::string model_;
  uint64_t prompt_tokens_ = 0;
  uint64_t output_tokens_ = 0;
  uint64_t prompts_ = 1;
  uint64_t choices_ = 1;
};

}  // namespace pdjob::router
