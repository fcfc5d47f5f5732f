#include "launcher/plan/vllm_options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "common/parse_number.h"

namespace pdjob::launcher {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// A negative number is a value.
bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// vLLM takes --max_model_len for --max-model-len. Behind a dot stands a member of the option's
// JSON, whose name it takes as it is.
std::string with_dashes(std::string_view name) {
  const size_t dot = name.find('.');
  std::string text(name.substr(0, dot));
  std::ranges::replace(text, '_', '-');
  return dot == std::string_view::npos ? text : text.append(name.substr(dot));
}

// The short names of options that pdjob takes out.
constexpr auto kShortNames = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"-tp", "--tensor-parallel-size"},
     {"-pp", "--pipeline-parallel-size"},
     {"-dp", "--data-parallel-size"},
     {"-pcp", "--prefill-context-parallel-size"},
     {"-ep", "--enable-expert-parallel"},
     {"-n", "--nnodes"},
     {"-r", "--node-rank"},
     {"-dpl", "--data-parallel-size-local"},
     {"-dpr", "--data-parallel-start-rank"},
     {"-dpa", "--data-parallel-address"},
     {"-dpp", "--data-parallel-rpc-port"},
     {"-dpn", "--data-parallel-rank"},
     {"-dph", "--data-parallel-hybrid-lb"},
     {"-dpm", "--data-parallel-multi-port-external-lb"},
     {"-dpe", "--data-parallel-external-lb"}});

constexpr auto kRendezvous = std::to_array<std::string_view>(
    {"--node-rank", "--master-addr", "--master-port", "--headless", "--data-parallel-size-local",
     "--data-parallel-start-rank", "--data-parallel-rank", "--data-parallel-address",
     "--data-parallel-rpc-port", "--data-parallel-hybrid-lb", "--data-parallel-external-lb",
     "--data-parallel-multi-port-external-lb"});

std::string long_name(std::string_view name) {
  if (name.starts_with("--")) {
    return with_dashes(name);
  }
  const auto* const known =
      std::ranges::find(kShortNames, name, &std::pair<std::string_view, std::string_view>::first);
  return std::string(known == kShortNames.end() ? name : known->second);
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

std::string VllmOptions::opposite(std::string_view name) {
  constexpr std::string_view kNo = "--no-";
  return name.starts_with(kNo)    ? std::string("--").append(name.substr(kNo.size()))
         : name.starts_with("--") ? std::string(kNo).append(name.substr(2))
                                  : std::string();
}

// A flag also takes the place of its opposite.
void VllmOptions::set(Option option) {
  if (option.values.empty() && !option.name.empty()) {
    std::erase_if(options_, [&, other = opposite(option.name)](const Option& set) {
      return set.values.empty() && set.name == other;
    });
  }
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
  const std::string flag = "--" + with_dashes(key);
  if (value != "true" && value != "false") {
    set({.name = flag, .values = {value}, .joined = true});
    return;
  }
  set({.name = value == "true" ? flag : opposite(flag)});
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
    option.name = long_name(word.starts_with("--") ? word.substr(0, equals) : word);
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

bool VllmOptions::has(std::string_view name) const {
  return std::ranges::find(options_, name, &Option::name) != options_.end();
}

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

uint64_t VllmSizes::gpus() const {
  uint64_t product = 1;
  for (const auto& size : {tensor, pipeline, data, context}) {
    product *= size.value_or(1);
  }
  return product;
}

VllmSizes take_sizes(VllmOptions& options, std::vector<VllmTaken>& wrong) {
  VllmSizes sizes;
  const auto read = [&](const char* name, const std::optional<std::string>& value,
                        std::optional<uint32_t>& size) {
    const auto number = value ? parse_number<uint16_t>(*value) : std::nullopt;
    if (number.value_or(0) > 0) {
      size = *number;
    } else if (value) {
      wrong.push_back({.name = name, .value = *value});
    }
  };
  const auto take = [&](const char* name, std::optional<uint32_t>& size) {
    read(name, options.take(name), size);
  };
  take("--tensor-parallel-size", sizes.tensor);
  take("--pipeline-parallel-size", sizes.pipeline);
  take("--data-parallel-size", sizes.data);
  take("--nnodes", sizes.nodes);
  constexpr const char* kContext = "--prefill-context-parallel-size";
  read(kContext, options.value(kContext), sizes.context);
  if (options.take("--enable-expert-parallel")) {
    sizes.expert = true;
  }
  if (options.take("--no-enable-expert-parallel")) {
    sizes.expert = false;
  }
  return sizes;
}

std::vector<VllmTaken> take_rendezvous(VllmOptions& options) {
  std::vector<VllmTaken> taken;
  for (const std::string_view name : kRendezvous) {
    if (const auto value = options.take(name)) {
      taken.push_back({.name = std::string(name), .value = *value});
    }
  }
  return taken;
}

}  // namespace pdjob::launcher
