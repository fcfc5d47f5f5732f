#include "worker/api/tool_replies.h"

#include <algorithm>
#include <utility>

#include "common/crypto/sha256.h"
#include "engine/grammar/tool_calls.h"

namespace pdjob::worker {
namespace {

constexpr size_t kIdDigits = 24;

// Where the request has the parameters of its tool number `index`, for errors.
std::string parameters_field(const openai::ApiRequest& request, size_t index) {
  const std::string number = "[" + std::to_string(index) + "]";
  if (request.legacy_functions) {
    return "functions" + number + ".parameters";
  }
  const bool flat = request.kind == openai::ApiKind::kResponses;
  return "tools" + number + (flat ? ".parameters" : ".function.parameters");
}

std::string tool_structure(openai::ApiRequest& request) {
  engine::ToolCallRules rules{.must = request.must_call_tool,
                              .several = request.parallel_tool_calls};
  const std::vector<size_t>& callable = request.callable_tools;
  for (size_t index = 0; index < request.tools.size(); ++index) {
    const openai::ApiTool& tool = request.tools[index];
    if (callable.empty() || std::ranges::find(callable, index) != callable.end()) {
      rules.tools.push_back({.place = parameters_field(request, index),
                             .name = tool.name,
                             .parameters = tool.parameters,
                             .exact = tool.strict});
    }
  }
  if (!request.sampling.json_schema.empty()) {
    rules.answer = std::exchange(request.sampling.json_schema, {});
    rules.answer_exact = request.sampling.schema_exact;
  }
  return engine::write_tool_calls(rules);
}

}  // namespace

Structure take_structure(openai::ApiRequest& request) {
  using engine::StructureKind;
  SamplingParams& sampling = request.sampling;
  if (!request.tools.empty()) {
    return {StructureKind::kToolCalls, tool_structure(request)};
  }
  if (!sampling.json_schema.empty()) {
    return {sampling.schema_exact ? StructureKind::kSchema : StructureKind::kOpenSchema,
            std::exchange(sampling.json_schema, {})};
  }
  return sampling.regex.empty()
             ? Structure{StructureKind::kGrammar, std::exchange(sampling.grammar, {})}
             : Structure{StructureKind::kRegex, std::exchange(sampling.regex, {})};
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
