// ProbePlan: which measurement of an engine comes next, within a bound on time.
//
// The first round goes from cheap to dear, and finds out what the engine can do: how long a prompt
// may be, how many requests it runs at once, what would take too long. Later rounds repeat what the
// first one measured. Value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/time.h"

namespace pdjob::launcher {

struct WantedProbe {
  enum class Kind : uint8_t {
    kPrompt,    // So many prompts at once: the time to the last first token.
    kDecode,    // So many streams: the time of a step, once all of them decode.
    kMixed,     // So many streams, and one prompt while they decode.
    kTransfer,  // The KV of one prompt, from one worker to another.
  };
  Kind kind = Kind::kPrompt;
  uint32_t requests = 1;
  uint32_t tokens = 0;  // Of each prompt; of kMixed: of the one that comes later.

  std::string name() const;
  friend auto operator<=>(const WantedProbe&, const WantedProbe&) = default;
};

class ProbePlan {
 public:
  struct Limits {
    Duration budget = std::chrono::minutes(2);  // For all of them.
    uint32_t rounds = 5;
    uint32_t prompt_tokens_max = UINT32_MAX;
    uint32_t requests_max = UINT32_MAX;
    bool transfers = false;
  };
  explicit ProbePlan(const Limits& limits);

  // Nothing: all is done, or there is no time for more.
  std::optional<WantedProbe> next(Duration left);

  // How the probe that came last from next() ended.
  void took(Duration wall);
  void was_too_long();  // The engine refuses such long prompts.
  void was_too_many();  // The engine does not run so many requests at once.
  void was_useless();   // No figure came of it.

  // How much of all is done: 0 to 1. It jumps if the engine can do less than was wanted.
  double share_done() const;

 private:
  bool possible(const WantedProbe& probe) const;
  Duration expected(const WantedProbe& probe) const;

  const Limits limits_;
  std::vector<WantedProbe> wanted_;
  std::map<WantedProbe, Duration> walls_;  // Of those that were measured.
  size_t at_ = 0;                          // In wanted_.
  uint32_t round_ = 0;
  uint32_t tokens_refused_ = UINT32_MAX;
  uint32_t requests_refused_ = UINT32_MAX;
};

}  // namespace pdjob::launcher
