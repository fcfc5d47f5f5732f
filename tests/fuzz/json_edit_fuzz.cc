// Edits hostile JSON. Zero edits change nothing. The result is one object again. A member that was
// set is found. A removed member is gone.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/check.h"
#include "openai/json/json_edit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pdjob::openai::JsonEdit;
  using pdjob::openai::JsonObject;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string_view> names = {"a", "model", "stream"};
  const auto object = JsonObject::scan(text, names);
  if (!object) {
    return 0;
  }
  PDJOB_CHECK(object->edited({}) == text);
  const std::string edited = object->edited(std::vector<JsonEdit>{{"a", "[1]"}, {"model", ""}});
  const auto again = JsonObject::scan(edited, names);
  PDJOB_CHECK(again.has_value(), text, edited);
  PDJOB_CHECK(again->value("a") == "[1]", text, edited);
  PDJOB_CHECK(again->value("model").empty(), text, edited);
  PDJOB_CHECK(again->value("stream") == object->value("stream"), text, edited);
  pdjob::openai::json_string(object->value("model"));
  return 0;
}
