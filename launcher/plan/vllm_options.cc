#include "launcher/plan/vllm_options.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace pdjob::launcher {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// A negative number is a value.
bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// vLLM takes --max_model_len for --max-model-len.
std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

}  // namespace

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;  // A word, which may be empty: ''.
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (quote == 0 && (is_blank(c) || (escapes && !inside && is_blank(text[i + 1])))) {
      inside = false;  // A backslash before a line end only joins lines.
      continue;
    }
    if (!inside) {
      words.emplace_back();
      inside = true;
    }
    if (escapes) {
      words.back() += text[++i];
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) {
    return Error{ErrorCode::kInvalidArgument, std::string("has a ") + quote + " without its end"};
  }
  return words;
}

void VllmOptions::set(Option option) {
  const auto same = std::ranges::find(options_, option.name, &Option::name);
  if (same == options_.end() || option.name.empty()) {
    options_.push_back(std::move(option));
    return;
  }
  *same = std::move(option);
  const std::string& name = same->name;
  options_.erase(std::remove_if(same + 1, options_.end(),
                                [&](const Option& other) { return other.name == name; }),
                 options_.end());
}

// The first of a name replaces what was set before.
void VllmOptions::set_all(std::vector<Option> options) {
  std::set<std::string> seen;
  for (Option& option : options) {
    if (seen.insert(option.name).second) {
      set(std::move(option));
    } else {
      options_.push_back(std::move(option));
    }
  }
}

void VllmOptions::set_param(std::string_view key, const std::string& value) {
  const std::string name = with_dashes(key);
  const std::string flag = "--" + name;
  const std::string no_flag = "--no-" + name;
  if (value != "true" && value != "false") {
    set({.name = flag, .values = {value}, .joined = true});
    return;
  }
  std::erase_if(options_, [&](const Option& option) {
    return option.name == (value == "true" ? no_flag : flag);
  });
  set({.name = value == "true" ? flag : no_flag});
}

void VllmOptions::set_words(const std::vector<std::string>& words) {
  std::vector<Option> options;
  Option option;
  const auto finish = [&] {
    if (!option.name.empty() || !option.values.empty()) {
      options.push_back(std::exchange(option, {}));
    }
  };
  for (const std::string& word : words) {
    if (!is_option(word)) {
      option.values.push_back(word);
      continue;
    }
    finish();
    const size_t equals = word.find('=');
    option.name = word.starts_with("--") ? with_dashes(word.substr(0, equals)) : word;
    if (equals != std::string::npos && word.starts_with("--")) {
      option.values.push_back(word.substr(equals + 1));
      option.joined = true;
      finish();
    }
  }
  finish();
  set_all(std::move(options));
}

void VllmOptions::merge(const VllmOptions& later) { set_all(later.options_); }

std::optional<std::string> VllmOptions::value(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  if (found == options_.end()) {
    return std::nullopt;
  }
  return found->values.empty() ? std::string() : found->values.front();
}

std::optional<std::string> VllmOptions::take(std::string_view name) {
  auto taken = value(name);
  std::erase_if(options_, [&](const Option& option) { return option.name == name; });
  return taken;
}

std::vector<std::string> VllmOptions::args() const {
  std::vector<std::string> args;
  for (const Option& option : options_) {
    if (option.joined) {
      args.push_back(option.name + "=" + option.values.front());
      continue;
    }
    if (!option.name.empty()) {
      args.push_back(option.name);
    }
    args.insert(args.end(), option.values.begin(), option.values.end());
  }
  return args;
}

}  // namespace pdjob::launcher
