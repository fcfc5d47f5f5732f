#include "launcher/plan/flag_config.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "common/config/config_text.h"

namespace pdjob::launcher {

namespace {

struct Tree {
  std::string value;
  std::map<std::string, Tree> children;
};

bool is_key(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, plain);
}

void write(const Tree& tree, const std::string& indent, std::string& yaml) {
  for (const auto& [key, child] : tree.children) {
    yaml += indent + key + ':';
    if (child.children.empty()) {
      yaml += " " + yaml_text(child.value) + '\n';
    } else {
      yaml += '\n';
      write(child, indent + "  ", yaml);
    }
  }
}

}  // namespace

Result<std::string> yaml_of_settings(const std::vector<std::string>& settings) {
  Tree root;
  for (const std::string& setting : settings) {
    const Error wrong{ErrorCode::kInvalidArgument,
                      "--set " + setting + ": must be SECTION.KEY=VALUE, such as engine.threads=2"};
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return wrong;
    }
    Tree* at = &root;
    for (size_t begin = 0; begin <= equals;) {
      const size_t end = std::min(setting.find('.', begin), equals);
      const std::string key = setting.substr(begin, end - begin);
      if (!is_key(key)) {
        return wrong;
      }
      at = &at->children[key];
      begin = end + 1;
    }
    at->value = setting.substr(equals + 1);
  }
  std::string yaml;
  write(root, "", yaml);
  return yaml;
}

}  // namespace pdjob::launcher
