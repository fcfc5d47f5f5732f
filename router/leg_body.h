// The body of a request, scanned once: what the router must know of it, and the bodies of both
// legs, made by splicing. Fields that the router does not know pass as they are, byte for byte.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/id.h"
#include "net/openai.h"

namespace pdjob::router {

class RequestBody {
 public:
  // 400 unless `text` is one JSON object.
  static std::variant<RequestBody, net::ApiError> scan(std::string text);

  const std::string& model() const { return model_; }  // Empty: not named.
  // Estimates: about four bytes of text make a token.
  uint64_t prompt_tokens() const { return text_.size() / 4; }
  uint64_t output_tokens() const { return output_tokens_; }

  // One token, not streamed, and kv_transfer_params.
  std::string prefill_leg(std::string_view kv_params) const;
  // The client's body with kv_transfer_params; empty: without, whatever the client wrote there.
  std::string decode_leg(std::string_view kv_params) const;

 private:
  // What becomes of a member.
  enum class Edit : uint8_t {
    kKept,
    kOne,      // 1 in the prefill leg.
    kFalse,    // false in the prefill leg.
    kDropped,  // Not in the prefill leg.
    kOurs,     // The router's own: the client's is in neither leg.
  };
  struct Member {
    Edit edit = Edit::kKept;
    size_t begin = 0;  // As in JsonMember.
    size_t value_begin = 0;
    size_t value_end = 0;
    size_t end = 0;
  };
  static Edit edit_of(std::string_view name);
  bool dropped(const Member& member, bool prefill) const;
  std::string spliced(bool prefill, std::string_view additions) const;

  std::string text_;
  std::string model_;
  uint64_t output_tokens_ = 0;
  bool has_max_tokens_ = false;
  std::vector<Member> members_;
};

// --- kv_transfer_params, as vLLM names its fields.

// Prefill leg: keep the KV under `transfer`.
std::string offer_params(const TransferId& transfer);
// Prefill leg of the two-hop: keep the KV and answer where it is.
std::string offer_unnamed_params();
// Decode leg: the KV is at `kv_address` (the prefill worker's JSON object) under `transfer`.
std::string fetch_params(std::string_view kv_address, const TransferId& transfer);
// Two-hop: kv_transfer_params of a prefill reply, verbatim; empty if there are none.
std::string returned_params(std::string_view reply_body);

}  // namespace pdjob::router
