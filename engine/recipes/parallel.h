// How an engine of another make is spread over GPUs and nodes. A job file says it by keys, or by
// the engine's own options in `engine.args`; a recipe knows how its make spells these. Values; the
// functions are Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob::engine {

inline constexpr uint32_t kParallelMax = 1024;
inline constexpr uint32_t kEngineNodesMax = 64;
inline constexpr uint32_t kEngineGpusMax = 4096;

// As keys say it. 0, false: as the engine's options say, else 1 and not.
struct Parallel {
  uint32_t tensor = 0;
  uint32_t pipeline = 0;
  uint32_t data = 0;
  uint32_t context =
      0;  // Of decode: it splits KV over the tensor-parallel ranks, and takes no more.
  bool expert = false;  // Experts are spread over all ranks.
  friend bool operator==(const Parallel&, const Parallel&) = default;
};

// The options of a make, each with all its spellings: the one that pdjob writes first. None: the
// make has no such thing.
struct ParallelOptions {
  std::vector<std::string> tensor;
  std::vector<std::string> pipeline;
  std::vector<std::string> data;
  std::vector<std::string> context;
  std::vector<std::string> expert;       // A switch, or NAME={tensor}.
  std::vector<std::string> factor;       // More options whose values multiply the ranks.
  std::vector<std::string> data_within;  // Switches: data-parallel ranks are the same GPUs.
  std::vector<std::string> reserved;     // What pdjob says itself, to the nodes of an engine.
  std::vector<std::string> files;        // Options that name a file with more options.
};

// What follows from both. All are at least 1, but for `gpus`.
struct EngineShape {
  uint32_t tensor = 1;
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t context = 1;
  bool expert = false;
  uint32_t ranks = 1;  // Processes that compute, over all nodes.
  uint32_t gpus = 0;   // Over all nodes, one for each rank; 0: it computes on CPUs.
  uint32_t nodes = 1;

  uint32_t gpus_per_node() const { return gpus / nodes; }
  uint32_t ranks_per_node() const { return ranks / nodes; }
  // Of one data-parallel rank.
  uint32_t ranks_of_replica() const { return std::max(ranks / data, 1U); }
  friend bool operator==(const EngineShape&, const EngineShape&) = default;
};

// "tensor 2, data 4"; empty: all are 1.
std::string sizes_text(const EngineShape& shape);

void read(ConfigReader& in, Parallel& parallel);
void read(ConfigReader& in, ParallelOptions& options);

struct ShapeWish {
  const ParallelOptions& options;
  const Parallel& keys;
  const std::vector<std::string>& args;  // Of the user.
  uint32_t gpus = 0;                     // 0: not said.
  uint32_t nodes = 1;
  bool computes_on_gpu = false;
};
// What contradicts itself is taken from the keys; check_shape() finds it.
EngineShape shape_of(const ShapeWish& wish);
// What cannot be.
struct ShapeProblem {
  std::string key;  // Of `engine`, such as "parallel.tensor".
  std::string message;
};
std::vector<ShapeProblem> check_shape(const ShapeWish& wish);

// The options that say what the keys say, where the user's options do not.
std::vector<std::string> parallel_args(const ShapeWish& wish);

}  // namespace pdjob::engine
