// JSON schemas of strangers, and their patterns. A refusal has a short reason. A translated pattern
// is anchored and within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "common/limits.h"
#include "engine/schema/json_schema.h"
#include "engine/schema/pattern.h"

using namespace pdjob;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto schema = engine::normalise_json_schema(text);
  if (!schema) {
    PDJOB_CHECK(schema.error().code == ErrorCode::kInvalidArgument);
    PDJOB_CHECK(!schema.error().message.empty() && schema.error().message.size() < 600);
  }
  if (const auto pattern = engine::translate_pattern(text)) {
    PDJOB_CHECK(pattern->empty() || (pattern->starts_with('^') && pattern->ends_with('$')));
    PDJOB_CHECK(pattern->size() <= 256 * limits::kPatternBytesMax);
  }
  return 0;
}
