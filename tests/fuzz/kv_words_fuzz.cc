// KV parameters from hostile engines, in a reply or as a bootstrap server. A leg's own KV
// parameters are always a JSON object, or empty.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "openai/json/json_edit.h"
#include "router/core/kv_words.h"

namespace {

using namespace pdjob::router;

void check_object(const std::string& text) {
  PDJOB_CHECK(text.empty() || pdjob::openai::edit_json_object(text, {}).has_value(), text);
}

void check_fetch(Protocol protocol, const std::string& address) {
  const KvDialect& dialect = dialect_of(protocol, /*concurrent=*/true);
  const HandOver hand_over{.transfer = {1, 2}, .address = address, .request_id = "r\"1"};
  dialect.offer(hand_over);
  check_object(dialect.fetch(hand_over).kv_transfer_params);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string params = returned_params(text);
  PDJOB_CHECK(params.empty() || params.starts_with('{'));
  const std::string pusher = dialect_of(Protocol::kNixlPush, true).address_in(text);
  check_object(pusher);
  for (const std::string& address : {text, params, pusher}) {
    check_fetch(Protocol::kPdjob, address);
    check_fetch(Protocol::kNixlPush, address);
    check_fetch(Protocol::kSglang, address);
  }
  check_fetch(Protocol::kMooncake, mooncake_address("h:1", text));
  check_fetch(Protocol::kMooncake, text);
  return 0;
}
