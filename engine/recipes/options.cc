#include "engine/recipes/options.h"

#include <algorithm>
#include <cctype>

namespace pdjob::engine {

bool is_option(std::string_view text) {
  return text.size() > 1 && text.front() == '-' && text != "--" &&
         std::isdigit(static_cast<unsigned char>(text[1])) == 0;
}

std::string option_name(std::string_view text) {
  std::string name(text.substr(0, text.find_first_of("=.")));
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string option_value(const std::vector<std::string>& args, size_t i) {
  if (const size_t equals = args[i].find('='); equals != std::string::npos) {
    return args[i].substr(equals + 1);
  }
  return i + 1 < args.size() && !is_option(args[i + 1]) ? args[i + 1] : "";
}

size_t option_texts(const std::vector<std::string>& args, size_t i) {
  const bool in_next = args[i].find('=') == std::string::npos && !option_value(args, i).empty();
  return in_next ? 2 : 1;
}

std::optional<std::string> option_of(const std::vector<std::string>& args,
                                     std::string_view option) {
  const std::string name = option_name(option);
  for (size_t i = args.size(); i-- > 0;) {
    if (is_option(args[i]) && option_name(args[i]) == name) {
      return option_value(args, i);
    }
  }
  return std::nullopt;
}

}  // namespace pdjob::engine
