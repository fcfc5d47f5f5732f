// A trace of prompts that share prefixes, and its replay through a policy: how much of what could
// be found in a cache is found.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "router/pair_policy.h"

namespace pdjob::router {

struct TracedPrompt {
  uint64_t tokens = 0;
  std::vector<uint64_t> blocks;  // As prompt_blocks() makes them.
};

// tests/data/compact_trace.py says what is in the file.
inline std::vector<TracedPrompt> load_trace(const std::string& path) {
  std::ifstream file(path);
  PDJOB_CHECK(file.good(), path);
  std::vector<TracedPrompt> trace;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) {
      continue;
    }
    uint64_t input = 0, output = 0;
    size_t blocks = 0, shared = 0;
    int64_t other = -1;
    std::istringstream(line) >> input >> output >> blocks >> shared >> other;
    TracedPrompt prompt{.tokens = input};
    for (size_t block = 0; block < blocks; ++block) {
      prompt.blocks.push_back(block < shared ? trace.at(static_cast<size_t>(other)).blocks.at(block)
                                             : mix(trace.size() << 20 | block));
    }
    trace.push_back(std::move(prompt));
  }
  return trace;
}

// Workers that compute prompts one after the other and never forget what they have computed. A
// prompt finds what was sent to its worker before, computed by then or not.
struct Replay {
  size_t workers = 64;
  double requests_per_second = 500;
  double tokens_per_second = 100'000;  // Of one worker.
};
struct ReplayResult {
  double hits = 0;                 // Share of all blocks.
  double bound = 0;                // The same with one cache that has seen every prompt before.
  double wait_p99_seconds = 0;     // Before a prompt is begun.
  double decision_p99_micros = 0;  // Of choose() and note_sent().
  double tokens_max_to_mean = 0;   // Computed by the busiest worker, beside the mean.
};

inline double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

inline ReplayResult replay(const std::vector<TracedPrompt>& trace, PairPolicy& policy,
                           const Replay& how) {
  struct Sim {
    double busy_until = 0;
    double computed = 0;
    std::unordered_set<uint64_t> cache;
  };
  std::vector<Sim> workers(how.workers);
  std::unordered_set<uint64_t> all;
  const auto found_in = [](const std::unordered_set<uint64_t>& cache, const TracedPrompt& prompt) {
    return static_cast<size_t>(
        std::find_if(prompt.blocks.begin(), prompt.blocks.end(),
                     [&](uint64_t block) { return !cache.contains(block); }) -
        prompt.blocks.begin());
  };
  Random random(1);
  size_t blocks = 0, hits = 0, bound = 0;
  std::vector<double> waits, decisions;
  double now = 0;
  for (const TracedPrompt& prompt : trace) {
    now += 1 / how.requests_per_second;
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < workers.size(); ++i) {
      const double queued = std::max(0.0, workers[i].busy_until - now) * how.tokens_per_second;
      candidates.push_back(
          {.id = WorkerId{i}, .load = static_cast<uint64_t>(queued), .name_hash = mix(i)});
    }
    const auto before = std::chrono::steady_clock::now();
    const Prompt asked{.tokens = prompt.tokens, .blocks = prompt.blocks};
    const Chosen chosen = policy.choose(asked, candidates, random);
    policy.note_sent(asked, chosen.worker);
    decisions.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before)
            .count());
    Sim& worker = workers[chosen.worker.value];
    const size_t found = found_in(worker.cache, prompt);
    blocks += prompt.blocks.size();
    hits += found;
    bound += found_in(all, prompt);
    const double left =
        static_cast<double>(prompt.tokens) *
        (1 - static_cast<double>(found) / static_cast<double>(prompt.blocks.size()));
    waits.push_back(std::max(0.0, worker.busy_until - now));
    worker.busy_until = std::max(worker.busy_until, now) + left / how.tokens_per_second;
    worker.computed += left;
    worker.cache.insert(prompt.blocks.begin(), prompt.blocks.end());
    all.insert(prompt.blocks.begin(), prompt.blocks.end());
  }
  double total = 0, most = 0;
  for (const Sim& worker : workers) {
    total += worker.computed;
    most = std::max(most, worker.computed);
  }
  const auto share = [&](size_t count) {
    return static_cast<double>(count) / static_cast<double>(blocks);
  };
  return {.hits = share(hits),
          .bound = share(bound),
          .wait_p99_seconds = percentile(waits, 0.99),
          .decision_p99_micros = percentile(decisions, 0.99),
          .tokens_max_to_mean = most / (total / static_cast<double>(workers.size()))};
}

}  // namespace pdjob::router
