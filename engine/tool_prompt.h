// Puts tools, calls and results into a conversation as plain text, for chat templates that do not
// know them. The text is that of Hermes' and Qwen's templates, in the form of
// grammar/tool_calls.h. Pure.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"

namespace pdjob::engine {

std::vector<ChatMessage> tools_as_text(std::span<const ChatMessage> messages,
                                       std::span<const ChatTool> tools);

}  // namespace pdjob::engine
