// store_trace_bench TRACE prints which share of a recorded load's prompts is found, and how long
// first tokens take. It compares no store of KV, stores of several sizes, and one that never
// forgets. Stores keep and evict as they ship (store/block_index). The router chooses as it ships
// (prefix_aware, KvStores). The rest is a model. Workers compute one prompt after the other.
// Loading costs the part of computing that the policy assumes.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "router/policies/kv_stores.h"
#include "router/policies/prefix_aware_policy.h"
#include "store/block_index.h"
#include "tests/support/prefix_trace.h"

namespace pdjob::router {
namespace {

constexpr size_t kMachines = 8;
constexpr size_t kWorkersEach = 2;
constexpr size_t kCacheBlocks = 250;  // Of a worker: 128,000 tokens in blocks of 512.
constexpr double kTokensPerSecond = 20'000;
constexpr double kRequestsPerSecond = 20;
constexpr double kNearCost = 1.0 / 8;
constexpr double kFarCost = 3.0 / 8;
constexpr uint64_t kBlockBytes = 1 << 20;

enum class Stores { kNone, kKept, kEndless };

struct Setting {
  Stores stores = Stores::kNone;
  size_t blocks = 0;         // Of each machine's store.
  size_t restart_every = 0;  // Requests between two restarts of a worker, one after the other.
};

struct Found {
  size_t own = 0, near = 0, far = 0, all = 0;
  double tokens_computed = 0;
  std::vector<double> ttfts;
};

template <class Has>
size_t leading(const std::vector<uint64_t>& blocks, const Has& has) {
  return static_cast<size_t>(
      std::ranges::find_if(blocks, [&](uint64_t block) { return !has(block); }) - blocks.begin());
}

store::Block block_of(const std::vector<uint64_t>& blocks, size_t at) {
  const auto name = [](uint64_t block) { return BlockName{.high = block, .low = ~block}; };
  return {.name = name(blocks[at]),
          .parent = at == 0 ? std::nullopt : std::optional(name(blocks[at - 1])),
          .depth = static_cast<uint32_t>(at)};
}

// The memory of one machine's store.
class MachineStore {
 public:
  explicit MachineStore(size_t blocks)
      : index_(store::Slots::of_memory(std::max<size_t>(blocks, 1) * kBlockBytes)) {
    index_.add_shape(kBlockBytes);
  }
  size_t has(const std::vector<uint64_t>& blocks) const {
    return leading(blocks, [this](uint64_t block) {
      return index_.find({.high = block, .low = ~block}).has_value();
    });
  }
  void use(const std::vector<uint64_t>& blocks, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      index_.count_use(*index_.find(block_of(blocks, i).name));
    }
  }
  // As a store fetches what a worker has: no block without the one before it.
  void take(const std::vector<uint64_t>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const store::Block block = block_of(blocks, i);
      if (!index_.find(block.name)) {
        const auto slot = index_.reserve(block);
        if (!slot) {
          return;
        }
        index_.keep(*slot, 0);
      }
    }
  }

 private:
  store::BlockIndex index_;
};

class Fleet {
 public:
  explicit Fleet(const Setting& setting)
      : setting_(setting), policy_(1 << 20), stores_(entries(net::Role::kStore)) {
    for (size_t i = 0; i < kMachines; ++i) {
      machines_.emplace_back(setting.blocks);
    }
    for (size_t i = 0; i < kMachines * kWorkersEach; ++i) {
      workers_.push_back({.id = WorkerId{next_id_++}, .cache = LruCache(kCacheBlocks)});
    }
    names_ = entries(net::Role::kBoth);
  }

  Found play(const std::vector<TracedPrompt>& trace) {
    for (const TracedPrompt& prompt : trace) {
      now_ += 1 / kRequestsPerSecond;
      while (!told_.empty() && told_.begin()->first <= now_) {
        told_.begin()->second();
        told_.erase(told_.begin());
      }
      restart_somebody();
      send(prompt);
    }
    return found_;
  }

 private:
  struct Worker {
    WorkerId id;
    double busy_until = 0;
    LruCache cache;
  };

  static std::vector<net::WorkerEntry> entries(net::Role role) {
    std::vector<net::WorkerEntry> all;
    for (size_t i = 0; i < kMachines * (role == net::Role::kStore ? 1 : kWorkersEach); ++i) {
      const std::string machine = "m" + std::to_string(i % kMachines);
      all.push_back({.engine_id = std::string(to_string(role)) + std::to_string(i),
                     .role = role,
                     .kv_address = R"({"remote_host_id":")" + machine + R"("})"});
    }
    return all;
  }

  void restart_somebody() {
    if (setting_.restart_every > 0 && ++requests_ % setting_.restart_every == 0) {
      Worker& worker = workers_[requests_ / setting_.restart_every % workers_.size()];
      worker.id = WorkerId{next_id_++};
      worker.cache = LruCache(kCacheBlocks);
    }
  }

  void send(const TracedPrompt& prompt) {
    const std::vector<uint64_t>& blocks = prompt.blocks;
    const bool kept = setting_.stores == Stores::kKept;
    const auto endless = static_cast<uint32_t>(
        setting_.stores == Stores::kEndless
            ? leading(blocks, [this](uint64_t block) { return all_.contains(block); })
            : 0);
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const double queued = std::max(0.0, workers_[i].busy_until - now_) * kTokensPerSecond;
      candidates.push_back(
          {.id = workers_[i].id,
           .load = static_cast<uint64_t>(queued),
           .name_hash = mix(i),
           .stored_near = kept ? stores_.matched(blocks, stores_.near(names_[i])) : endless,
           .stored = kept ? stores_.matched(blocks) : endless});
    }
    std::ranges::sort(candidates, {}, &Candidate::id);
    const PromptFacts asked{.tokens = prompt.tokens, .blocks = blocks};
    const Chosen chosen = policy_.choose(asked, candidates, random_);
    policy_.note_sent(asked, chosen.worker);
    const auto at = static_cast<size_t>(std::ranges::find(workers_, chosen.worker, &Worker::id) -
                                        workers_.begin());
    compute(prompt, at, endless);
  }

  void compute(const TracedPrompt& prompt, size_t at, size_t endless) {
    const std::vector<uint64_t>& blocks = prompt.blocks;
    Worker& worker = workers_[at];
    MachineStore& machine = machines_[at % kMachines];
    const WorkerId near_store = stores_.near(names_[at]);
    const size_t own =
        leading(blocks, [&](uint64_t block) { return worker.cache.contains(block); });
    size_t near = std::max(own, endless);
    size_t far = near;
    if (setting_.stores == Stores::kKept) {
      near = std::max(own, machine.has(blocks));
      machine.use(blocks, near > own ? near : 0);
      const WorkerId more = stores_.more(blocks, near_store);
      far = more.value == 0 ? near : std::max(near, machines_[machine_of(more)].has(blocks));
      stores_.note_sent(blocks, near_store);
    }
    const double tokens_each =
        static_cast<double>(prompt.tokens) / static_cast<double>(blocks.size());
    const auto tokens = [&](size_t count) { return static_cast<double>(count) * tokens_each; };
    const double computed = tokens(blocks.size() - far);
    const double work = computed + kNearCost * tokens(near - own) + kFarCost * tokens(far - near);
    worker.busy_until = std::max(worker.busy_until, now_) + work / kTokensPerSecond;
    found_.own += own;
    found_.near += near - own;
    found_.far += far - near;
    found_.all += blocks.size();
    found_.tokens_computed += computed;
    found_.ttfts.push_back(worker.busy_until - now_);
    worker.cache.use(blocks);
    all_.insert(blocks.begin(), blocks.end());
    told_.emplace(worker.busy_until, [this, &prompt, &machine, id = worker.id] {
      policy_.note_ended({.tokens = prompt.tokens, .blocks = prompt.blocks}, id);
      if (setting_.stores == Stores::kKept) {
        machine.take(prompt.blocks);
      }
    });
  }

  // Stores got their ids in the order of their machines.
  size_t machine_of(WorkerId store) const {
    for (size_t i = 0; i < kMachines; ++i) {
      if (stores_.near(names_[i]) == store) {
        return i;
      }
    }
    return 0;
  }

  const Setting setting_;
  PrefixAwarePolicy policy_;
  KvStores stores_;
  Random random_{1};
  std::vector<MachineStore> machines_;
  std::vector<Worker> workers_;
  std::vector<net::WorkerEntry> names_;
  std::unordered_set<uint64_t> all_;
  std::multimap<double, std::function<void()>> told_;  // The key is the time.
  uint64_t next_id_ = 1;
  size_t requests_ = 0;
  double now_ = 0;
  Found found_;
};

void show(const std::string& name, const std::vector<TracedPrompt>& trace, const Setting& setting) {
  const Found found = Fleet(setting).play(trace);
  const auto share = [&](size_t blocks) {
    return 100 * static_cast<double>(blocks) / static_cast<double>(found.all);
  };
  double sum = 0;
  for (const double ttft : found.ttfts) {
    sum += ttft;
  }
  std::printf(
      "%-28s found %5.1f %% (own %5.1f, near %5.1f, far %5.1f)   TTFT mean %6.2f s, P99 %6.2f s\n",
      name.c_str(), share(found.own + found.near + found.far), share(found.own), share(found.near),
      share(found.far), sum / static_cast<double>(found.ttfts.size()),
      percentile(found.ttfts, 0.99));
}

int run(const char* path) {
  const auto trace = load_trace(path);
  std::printf("%zu requests, %zu machines with %zu workers\n", trace.size(), kMachines,
              kWorkersEach);
  for (const size_t restarts : {size_t{0}, size_t{20}}) {
    std::printf(restarts == 0 ? "no worker restarts\n" : "a worker restarts every %zu requests\n",
                restarts);
    show("no store", trace, {.restart_every = restarts});
    for (const size_t blocks : {500, 1000, 2000, 4000, 8000}) {
      show("stores of " + std::to_string(blocks) + " blocks", trace,
           {.stores = Stores::kKept, .blocks = blocks, .restart_every = restarts});
    }
    show("a store that never forgets", trace,
         {.stores = Stores::kEndless, .restart_every = restarts});
  }
  return 0;
}

}  // namespace
}  // namespace pdjob::router

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: store_trace_bench TRACE (tests/data/README.md)\n");
    return 2;
  }
  return pdjob::router::run(argv[1]);
}
