#include "worker/api/tool_replies.h"

#include <utility>

#include "common/crypto/sha256.h"
#include "engine/grammar/tool_calls.h"

namespace pdjob::worker {
namespace {

constexpr size_t kIdDigits = 24;

}  // namespace

std::string tool_structure(const openai::ApiRequest& request) {
  engine::ToolCallRules rules{.must = request.must_call_tool,
                              .several = request.parallel_tool_calls && !request.named_tool};
  const char* const parameters =
      request.kind == openai::ApiKind::kResponses ? "].parameters" : "].function.parameters";
  for (size_t index = 0; index < request.tools.size(); ++index) {
    const openai::ApiTool& tool = request.tools[index];
    if (index == request.named_tool.value_or(index)) {
      rules.tools.push_back({.place = "tools[" + std::to_string(index) + parameters,
                             .name = tool.name,
                             .parameters = tool.parameters});
    }
  }
  return engine::write_tool_calls(rules);
}

std::string call_seed(std::string_view reply_id, int64_t created,
                      const std::vector<Token>& prompt) {
  std::string seed(reply_id);
  seed.append(" ").append(std::to_string(created)).append(" ");
  return sha256_of(
      seed.append(reinterpret_cast<const char*>(prompt.data()), prompt.size() * sizeof(Token)));
}

std::string ChoiceCalls::id_of(uint32_t call) const {
  const std::string name = seed_ + " " + std::to_string(choice_) + " " + std::to_string(call);
  return "call_" + sha256_of(name).substr(0, kIdDigits);
}

void ChoiceCalls::take(std::string_view text, bool last, std::string& content,
                       std::vector<openai::ToolCallPart>& parts) {
  pieces_.clear();
  reader_.read(text, content, pieces_);
  if (last) {
    reader_.finish(content);
  }
  for (engine::ToolCallPiece& piece : pieces_) {
    if (parts.empty() || parts.back().index != piece.call) {
      parts.push_back({.index = piece.call});
    }
    if (!piece.name.empty()) {
      parts.back().id = id_of(piece.call);
      parts.back().name = std::move(piece.name);
    }
    parts.back().arguments += piece.arguments;
  }
}

}  // namespace pdjob::worker
