// Options of `vllm serve` as vLLM's own `pdjob` file has them: keys of `params`, and the shell text
// of `_extra_params`. Later ones replace earlier ones of the same name. Value; the functions are
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::launcher {

// Splits a command line as a shell does, without expanding anything. kInvalidArgument: a quote is
// not closed.
Result<std::vector<std::string>> shell_words(std::string_view text);

class VllmOptions {
 public:
  // A key of `params`, such as max_model_len. "true" and "false" make flags.
  void set_param(std::string_view key, const std::string& value);
  // Words of `_extra_params`. An option may stand there several times, as --middleware does.
  void set_words(const std::vector<std::string>& words);
  // Adds all options of `later`.
  void merge(const VllmOptions& later);
  bool has(std::string_view name) const;

  // The value of an option such as "--max-model-len"; nothing: it is not set.
  std::optional<std::string> value(std::string_view name) const;
  // The same, and removes the option.
  std::optional<std::string> take(std::string_view name);
  // As arguments, in the order in which they were first set.
  std::vector<std::string> args() const;

 private:
  struct Option {
    std::string name;                 // "--max-model-len", "-q"; empty: words before any option.
    std::vector<std::string> values;  // Empty: a flag.
    bool joined = false;              // Written as NAME=VALUE.
  };
  static std::string opposite(std::string_view name);
  void set(Option option);
  void set_all(std::vector<Option> options);

  std::vector<Option> options_;
};

// How one engine is split over GPUs, as far as options say so.
struct VllmSizes {
  std::optional<uint32_t> tensor;
  std::optional<uint32_t> pipeline;
  std::optional<uint32_t> data;
  std::optional<uint32_t> context;  // Of prefill: GPUs in addition.
  std::optional<uint32_t> nodes;
  std::optional<bool> expert;

  uint64_t gpus() const;  // The product of the sizes.
};

// An option that pdjob takes out, for a message about it.
struct VllmTaken {
  std::string name;
  std::string value;
};

// Takes the sizes out of the options, but for `context`, which stays. An option whose value is no
// whole number from 1 on goes to `wrong`.
VllmSizes take_sizes(VllmOptions& options, std::vector<VllmTaken>& wrong);

// Takes out the options by which the parts of an engine on several nodes find each other, because
// pdjob sets them.
std::vector<VllmTaken> take_rendezvous(VllmOptions& options);

}  // namespace pdjob::launcher
