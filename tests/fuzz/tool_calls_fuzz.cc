// Text of a model that may call tools. However it is cut into pieces, the same content and calls
// come out of it, and no byte of it is lost. The same bytes as rules of calls never crash.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "engine/grammar/tool_calls.h"
#include "engine/tool_call_reader.h"

using namespace pdjob;

namespace {

struct Split {
  std::string content;
  std::vector<std::string> names;
  std::vector<std::string> arguments;
  bool ends_in_calls = false;
  friend bool operator==(const Split&, const Split&) = default;
};

Split split(std::string_view text, size_t step) {
  engine::ToolCallReader reader;
  Split out;
  std::vector<engine::ToolCallPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) {
    pieces.clear();
    reader.read(text.substr(at, step), out.content, pieces);
    for (const engine::ToolCallPiece& piece : pieces) {
      if (piece.call == out.names.size()) {
        out.names.push_back(piece.name);
        out.arguments.emplace_back();
      }
      PDJOB_CHECK(piece.call + 1 == out.names.size());
      out.arguments.back() += piece.arguments;
    }
  }
  reader.finish(out.content);
  out.ends_in_calls = reader.ends_in_calls();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Split whole = split(text, size + 1);
  PDJOB_CHECK(split(text, 1) == whole);
  PDJOB_CHECK(split(text, 7) == whole);
  size_t bytes = whole.content.size();
  for (const std::string& arguments : whole.arguments) {
    bytes += arguments.size();
  }
  PDJOB_CHECK(bytes <= size);
  PDJOB_CHECK(text.find(engine::kCallOpen) != std::string_view::npos || whole.content == text);
  engine::NotHeld not_held;
  if (const auto checked = engine::check_tool_calls(text, not_held); !checked) {
    PDJOB_CHECK(!checked.error().message.empty());
  }
  return 0;
}
