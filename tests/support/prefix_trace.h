// A trace of prompts that share prefixes, and its replay through a policy. The replay measures
// which share of the possible cache hits the policy gets.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "router/policies/pair_policy.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {

struct TracedPrompt {
  uint64_t tokens = 0;
  std::vector<uint64_t> blocks;  // In the form of prompt_blocks().
};

// For the file's format see tests/data/compact_trace.py.
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

// The blocks that a worker has computed. It evicts the least recently used blocks first, and the
// ends of prompts before their beginnings.
class LruCache {
 public:
  explicit LruCache(size_t blocks_max) : blocks_max_(blocks_max) {}

  bool contains(uint64_t block) const { return places_.contains(block); }
  // Returns the evicted blocks.
  std::vector<uint64_t> use(const std::vector<uint64_t>& blocks) {
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      if (const auto known = places_.find(*block); known != places_.end()) {
        ages_.splice(ages_.begin(), ages_, known->second);
      } else {
        ages_.push_front(*block);
        places_[*block] = ages_.begin();
      }
    }
    std::vector<uint64_t> forgotten;
    while (ages_.size() > blocks_max_) {
      forgotten.push_back(ages_.back());
      places_.erase(ages_.back());
      ages_.pop_back();
    }
    return forgotten;
  }

 private:
  size_t blocks_max_;
  std::list<uint64_t> ages_;  // Newest first.
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

// Workers compute prompts one after the other. A prompt hits every block that was sent to its
// worker before, computed by then or not, unless it was evicted.
struct Replay {
  size_t workers = 64;
  double requests_per_second = 500;
  double tokens_per_second = 100'000;  // Per worker.
  size_t cache_blocks = SIZE_MAX;      // Per worker.
  bool tokens_first = false;           // Whether a prompt's tokens are known before it is sent.
};
// Requests go to the routers in turn. A router with `kv` learns a worker's blocks, and the tokens
// of its own prompts, when a prompt has been computed.
struct ReplayRouter {
  PairPolicy* policy = nullptr;
  KvKnowledge* kv = nullptr;
};
struct ReplayResult {
  double hits = 0;                 // The share of all blocks.
  double bound = 0;                // The same for one cache that has seen every earlier prompt.
  double missed = 0;               // The share of the expected cached tokens that was missing.
  double wait_p99_seconds = 0;     // Until the prompt's computation begins.
  double decision_p99_micros = 0;  // Of choose() and note_sent() together.
  double tokens_max_to_mean = 0;   // Tokens computed by the busiest worker, divided by the mean.
};

inline double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Represents each block of the trace by one block of 16 tokens.
inline std::vector<uint32_t> trace_tokens(const std::vector<uint64_t>& blocks) {
  std::vector<uint32_t> tokens;
  for (const uint64_t block : blocks) {
    tokens.insert(tokens.end(), kTokenBlockTokens, static_cast<uint32_t>(block));
  }
  return tokens;
}

inline ReplayResult replay(const std::vector<TracedPrompt>& trace,
                           const std::vector<ReplayRouter>& routers, const Replay& how) {
  struct Sim {
    double busy_until = 0;
    double computed = 0;
    LruCache cache;
  };
  std::vector<Sim> workers(how.workers, {.cache = LruCache(how.cache_blocks)});
  std::unordered_set<uint64_t> all;
  const auto found_in = [](const auto& cache, const TracedPrompt& prompt) {
    return static_cast<size_t>(
        std::find_if(prompt.blocks.begin(), prompt.blocks.end(),
                     [&](uint64_t block) { return !cache.contains(block); }) -
        prompt.blocks.begin());
  };
  for (const ReplayRouter& router : routers) {
    for (size_t i = 0; router.kv != nullptr && i < how.workers; ++i) {
      router.kv->begin(WorkerId{i}, /*complete=*/true);
    }
  }
  std::multimap<double, std::function<void()>> told;  // The key is the time.
  Random random(1);
  size_t blocks = 0, hits = 0, bound = 0;
  double counted_on = 0, missed = 0;
  std::vector<double> waits, decisions;
  double now = 0;
  for (const TracedPrompt& prompt : trace) {
    now += 1 / how.requests_per_second;
    while (!told.empty() && told.begin()->first <= now) {
      told.begin()->second();
      told.erase(told.begin());
    }
    const ReplayRouter& router = routers[waits.size() % routers.size()];
    PairPolicy& policy = *router.policy;
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < workers.size(); ++i) {
      const double queued = std::max(0.0, workers[i].busy_until - now) * how.tokens_per_second;
      candidates.push_back(
          {.id = WorkerId{i}, .load = static_cast<uint64_t>(queued), .name_hash = mix(i)});
    }
    if (how.tokens_first) {
      router.kv->learn({}, prompt.blocks, prompt.blocks.size() * kPromptBlockBytes,
                       trace_tokens(prompt.blocks));
    }
    const auto before = std::chrono::steady_clock::now();
    const PromptFacts asked{.tokens = prompt.tokens, .blocks = prompt.blocks};
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
    const double share_found =
        static_cast<double>(found) / static_cast<double>(prompt.blocks.size());
    const double left = static_cast<double>(prompt.tokens) * (1 - share_found);
    const auto expected = static_cast<double>(chosen.cached_tokens);
    counted_on += expected;
    missed += std::max(0.0, expected - static_cast<double>(prompt.tokens) * share_found);
    waits.push_back(std::max(0.0, worker.busy_until - now));
    worker.busy_until = std::max(worker.busy_until, now) + left / how.tokens_per_second;
    worker.computed += left;
    const std::vector<uint64_t> forgotten = worker.cache.use(prompt.blocks);
    all.insert(prompt.blocks.begin(), prompt.blocks.end());
    told.emplace(worker.busy_until, [&routers, &router, &prompt, forgotten, id = chosen.worker] {
      const openai::KvBlocksStored stored{.hashes = prompt.blocks,
                                          .tokens = trace_tokens(prompt.blocks),
                                          .block_size = kTokenBlockTokens};
      for (const ReplayRouter& each : routers) {
        if (each.kv != nullptr) {
          each.kv->take(id,
                        std::vector<openai::KvEvent>{stored, openai::KvBlocksRemoved{forgotten}});
        }
      }
      if (router.kv != nullptr) {
        router.kv->learn({}, prompt.blocks, prompt.blocks.size() * kPromptBlockBytes,
                         stored.tokens);
      }
      router.policy->note_ended({.tokens = prompt.tokens, .blocks = prompt.blocks}, id);
    });
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
          .missed = counted_on == 0 ? 0 : missed / counted_on,
          .wait_p99_seconds = percentile(waits, 0.99),
          .decision_p99_micros = percentile(decisions, 0.99),
          .tokens_max_to_mean = most / (total / static_cast<double>(workers.size()))};
}

inline ReplayResult replay(const std::vector<TracedPrompt>& trace, PairPolicy& policy,
                           const Replay& how) {
  return replay(trace, std::vector<ReplayRouter>{{.policy = &policy}}, how);
}

// Replays with `routers` prefix_aware routers. They know what they sent or, with `events`, what the
// caches hold.
inline ReplayResult replay_prefix_aware(const std::vector<TracedPrompt>& trace, size_t routers,
                                        bool events, const Replay& how) {
  constexpr uint32_t kMax = 1 << 20;
  std::vector<std::unique_ptr<KvKnowledge>> knowledge;
  std::vector<std::unique_ptr<PairPolicy>> policies;
  std::vector<ReplayRouter> all;
  for (size_t i = 0; i < routers; ++i) {
    knowledge.push_back(events ? std::make_unique<KvKnowledge>(
                                     KvKnowledge::Limits{.blocks_max = kMax, .texts_max = kMax})
                               : nullptr);
    policies.push_back(make_policy(PolicyKind::kPrefixAware, knowledge.back().get()));
    all.push_back({policies.back().get(), knowledge.back().get()});
  }
  return replay(trace, all, how);
}

}  // namespace pdjob::router
