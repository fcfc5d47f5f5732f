// Options as engines of other makes take them on their command lines: --name value, --name=value,
// and --section.name value. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::engine {

// If true, the text begins an option. A negative number is a value.
bool is_option(std::string_view text);

// Engines take --max_model_len for --max-model-len. An option with a dot, such as
// --kv-transfer-config.kv_role, sets a part of the option before the dot, and has its name.
std::string option_name(std::string_view text);

// The value of the option at `i`: behind its '=', or in the next text. Empty: it has none.
std::string option_value(const std::vector<std::string>& args, size_t i);

// How many texts the option at `i` takes: itself, and its value if that is the next one.
size_t option_texts(const std::vector<std::string>& args, size_t i);

// The value of this option; nothing: it is not there. Of several, engines take the last.
std::optional<std::string> option_of(const std::vector<std::string>& args, std::string_view option);

}  // namespace pdjob::engine
