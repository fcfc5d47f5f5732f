// Settings: keys and values of a command line, laid over the tree of a config file before it is
// read. So a setting has the checks, the bounds and the errors of the same key in the file. Pure.
#pragma once

#include <string>
#include <vector>

namespace pdjob {

class ConfigErrors;
struct ConfigNode;

struct ConfigSetting {
  enum class Form {
    kYaml,  // The value is YAML: `3`, `[a, b]`.
    kText,  // The value is the text as it stands.
  };

  // KEY=VALUE. The key is dotted, as in docs/reference/job-file.md; a part with a dot in it stands
  // in double quotes. A number is the place in a list; the place behind the last one is new.
  std::string text;
  Form form = Form::kYaml;
  std::string flag = "--set";  // Its name in errors.
};

// The settings of the flag --set.
std::vector<ConfigSetting> settings_of(const std::vector<std::string>& texts);

// Later settings win over earlier ones, and all over the tree. A setting that holds a secret is
// refused, and its error does not show it: all users of a machine can read its command lines.
void lay_over(ConfigNode& root, const std::vector<ConfigSetting>& settings, ConfigErrors& errors);

}  // namespace pdjob
