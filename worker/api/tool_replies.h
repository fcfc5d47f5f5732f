// Calls of tools in requests and replies: which calls a request lets its model make, and the calls
// in the text of a choice. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/tool_call_reader.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"

namespace pdjob::worker {

struct Structure {
  engine::StructureKind kind{};
  std::string text;
};
// The structure of the request's output, which the request then no longer has. Requires: it has
// tools, or its sampling is structured.
Structure take_structure(openai::ApiRequest& request);

// What the ids of a request's calls are made of. The same for a worker that continues the request,
// so that a client never sees two ids of one call.
std::string call_seed(std::string_view reply_id, int64_t created, const std::vector<Token>& prompt);

// The calls of one choice.
class ChoiceCalls {
 public:
  ChoiceCalls(std::string seed, uint32_t choice) : seed_(std::move(seed)), choice_(choice) {}

  // Appends what `text` adds to the content and to the parts of calls. `last`: the choice ends.
  void take(std::string_view text, bool last, std::string& content,
            std::vector<openai::ToolCallPart>& parts);
  bool ends_in_calls() const { return reader_.ends_in_calls(); }

 private:
  std::string id_of(uint32_t call) const;

  std::string seed_;
  uint32_t choice_;
  engine::ToolCallReader reader_;
  std::vector<engine::ToolCallPiece> pieces_;  // A buffer.
};

}  // namespace pdjob::worker
