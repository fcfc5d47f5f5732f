// FleetSearch: the smallest fleet that serves a load within an SLO, found by simulating fleets.
//
// For each kind of fleet, disaggregated or not, the number of workers is doubled until it is
// enough, and then the range below is halved. For each number, the split between the roles, or the
// chunk, is climbed from the best one of the number before. At last, other settings are tried with
// one worker less. So a fleet is found that no tried neighbour beats; a test compares it with an
// exhaustive search. Pure: simulating is the caller's.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pdjob::launcher {

// Settings that may be changed with the sizes. A 0 leaves what the file says.
struct FleetSettings {
  uint32_t chunk = 0;      // decode.local_chunk_tokens, of workers of both roles.
  uint32_t sequences = 0;  // engine.sequences
  bool spills = false;     // Idle workers of one role help the other: router.bypass_busy_requests.
  auto operator<=>(const FleetSettings&) const = default;
};

struct Fleet {
  uint32_t prefill = 0, decode = 0, both = 0;  // Workers.
  FleetSettings settings;

  uint32_t workers() const { return prefill + decode + both; }
  bool disaggregated() const { return both == 0; }
  // "2 prefill + 1 decode", "3 both, chunk 128"
  std::string name() const;
  auto operator<=>(const Fleet&) const = default;
};

// What a simulation showed of a fleet.
struct FleetScore {
  double share = 0;   // Of the requests, those within the SLO.
  double strain = 0;  // The p90 of TTFT or ITL over its limit; the larger one.
  bool better_than(const FleetScore& other) const {
    return share != other.share ? share > other.share : strain < other.strain;
  }
};

// `rate`: requests come so many times as fast as in the load. kOneByOne: no request meets another.
inline constexpr double kOneByOne = 0;
using Simulate = std::function<FleetScore(const Fleet& fleet, double rate)>;

struct FleetSearchOptions {
  uint32_t workers_max = 64;
  // Of the requests, so many must be within the SLO when they come `margin` times as fast.
  double share = 0.95;
  double margin = 1.1;
  std::vector<uint32_t> chunks;     // In order; not empty.
  std::vector<uint32_t> sequences;  // Further values of engine.sequences to try.
};

struct FoundFleet {
  Fleet fleet;
  FleetScore score;  // With the margin.
};

struct FleetAnswer {
  std::optional<FoundFleet> best;       // Empty: no fleet of up to workers_max is enough.
  std::optional<FoundFleet> runner_up;  // The smallest of the other kind.
  // If there is no best one: the nearest.
  std::optional<FoundFleet> nearest;
  // False: a request alone in one worker misses the SLO, so more workers cannot help.
  bool possible = true;
  FleetScore alone;
  size_t simulated = 0;  // Fleets.
};

class FleetSearch {
 public:
  FleetSearch(FleetSearchOptions options, Simulate simulate)
      : options_(std::move(options)), simulate_(std::move(simulate)) {}

  // The smallest fleet that is enough.
  FleetAnswer smallest();
  // The best fleet of exactly so many workers. Requires: workers > 0.
  FleetAnswer best_of(uint32_t workers);

 private:
  enum class Kind { kBoth, kSplit };
  struct Climb {  // Where the next number of workers begins.
    size_t chunk = 0;
    double prefill_share = 0.5;
  };

  FleetScore score(const Fleet& fleet, double rate);
  bool enough(const FleetScore& score) const { return score.share >= options_.share; }
  FoundFleet best_split(uint32_t workers, const FleetSettings& settings, Climb& climb);
  FoundFleet best_both(uint32_t workers, const FleetSettings& settings, Climb& climb);
  FoundFleet best_sizes(Kind kind, uint32_t workers, const FleetSettings& settings, Climb& climb);
  std::optional<FoundFleet> smallest_of(Kind kind);
  // With other settings, where they make it better.
  FoundFleet refined(FoundFleet found, uint32_t workers);
  std::vector<FleetSettings> changes_of(const Fleet& fleet) const;
  FleetAnswer finished(FleetAnswer answer);

  const FleetSearchOptions options_;
  const Simulate simulate_;
  std::map<std::pair<Fleet, double>, FleetScore> scores_;
  std::optional<FoundFleet> nearest_;
};

}  // namespace pdjob::launcher
