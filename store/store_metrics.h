// StoreMetrics: the metrics of a store. Counters begin with the process. Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/metrics.h"
#include "store/block_store.h"

namespace pdjob::store {

class StoreMetrics {
 public:
  StoreMetrics();

  struct TierNow {
    size_t blocks = 0;
    size_t owners = 0;
    uint64_t evicted = 0;
    uint64_t bytes_used = 0;
    uint64_t bytes_max = 0;
  };
  struct Now {
    StoreCounts counts;
    TierNow memory;
    TierNow disk;
    size_t offers = 0;
    size_t fetches = 0;
    size_t queued = 0;
    size_t unwritten = 0;
  };
  static Now now(const BlockStore& store);
  // The text for Prometheus. Requires: counts never fall.
  std::string text(const Now& now);

 private:
  // A counter, and the number that it shows.
  struct Shown {
    Counter counter;
    uint64_t StoreCounts::* count;
  };

  // The metrics of one tier.
  class Tier {
   public:
    Tier(Metrics& metrics, const char* name);
    void show(const TierNow& now);

   private:
    Gauge blocks_;
    Gauge owners_;
    Counter evicted_;
    Gauge bytes_used_;
    Gauge bytes_max_;
    uint64_t evicted_told_ = 0;
  };

  Metrics metrics_;
  std::array<Shown, 12> counters_;
  Tier memory_;
  Tier disk_;
  Gauge offers_;
  Gauge fetches_;
  Gauge queued_;
  Gauge unwritten_;
  StoreCounts told_;
};

}  // namespace pdjob::store
