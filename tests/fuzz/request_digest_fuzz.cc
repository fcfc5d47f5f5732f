// Digests of hostile bodies. White space between tokens changes nothing; another member changes the
// digest. A question always comes with its context.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "openai/json/json_edit.h"
#include "router/cache/request_digest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pdjob::router::request_digest;
  const std::string body(reinterpret_cast<const char*>(data), size);
  const auto digest = request_digest("/v1/completions", "", body);
  if (!digest) {
    return 0;
  }
  PDJOB_CHECK(digest->question.empty() == digest->context.empty(), body);
  std::string compact;
  pdjob::openai::append_compact(compact, body);
  const auto same = request_digest("/v1/completions", "", compact);
  PDJOB_CHECK(same.has_value(), body, compact);
  PDJOB_CHECK(same->whole == digest->whole, body, compact);
  PDJOB_CHECK(same->question == digest->question, body, compact);
  const pdjob::openai::JsonEdit one_more[] = {{"never seen", "1"}};
  const auto edited = pdjob::openai::edit_json_object(body, one_more);
  PDJOB_CHECK(edited.has_value(), body);
  if (const auto other = request_digest("/v1/completions", "", *edited)) {
    PDJOB_CHECK(other->whole != digest->whole || body == *edited, body, *edited);
  }
  return 0;
}
