// The form in which a model writes calls of tools, and the structure that makes it keep to it. The
// form is that of Hermes and Qwen:
//
//   <tool_call>
//   {"name": "get_weather", "arguments": {"city": "Paris"}}
//   </tool_call>
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/schema/not_held.h"

namespace pdjob::engine {

// A call is kCallOpen, kCallName, a name, kCallArguments, a JSON object, kCallClose.
inline constexpr std::string_view kCallOpen = "<tool_call>";
inline constexpr std::string_view kCallName = "\n{\"name\": \"";
inline constexpr std::string_view kCallArguments = "\", \"arguments\": ";
inline constexpr std::string_view kCallClose = "}\n</tool_call>";

// Which calls a generation may or must make.
struct ToolCallRules {
  struct Tool {
    std::string place;       // Its schema's field in the request, for errors.
    std::string name;        // Of letters, digits, "_" and "-".
    std::string parameters;  // The JSON schema of its arguments.
    bool exact = true;       // Refuse parameters that cannot be held; otherwise hold what can be.
  };
  bool must = false;     // It begins with a call. Otherwise it is free text until a call opens.
  bool several = false;  // It may go on with further calls.
  std::vector<Tool> tools = {};
  // Without a call, the text is JSON of this schema. Its place is response_format.
  std::optional<std::string> answer = std::nullopt;
  bool answer_exact = true;
};

// As the text of a structure, and back. read_tool_calls() fails with kCorrupt on other bytes.
std::string write_tool_calls(const ToolCallRules& rules);
Result<ToolCallRules> read_tool_calls(std::string_view bytes);

// Returns the text for the compiler, and adds what is not held. Every schema is normalised by
// normalise_json_schema(). Fails with kInvalidArgument; the message begins with the place of the
// wrong schema.
Result<std::string> check_tool_calls(std::string_view bytes, NotHeld& not_held);

}  // namespace pdjob::engine
