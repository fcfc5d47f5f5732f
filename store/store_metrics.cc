#include "store/store_metrics.h"

namespace pdjob::store {
namespace {

Counter skipped(Metrics& metrics, const char* reason) {
  return metrics.counter("pdjob_store_blocks_skipped_total",
                         "Blocks that a worker held and the store did not fetch, by reason.",
                         {{"reason", reason}});
}

}  // namespace

StoreMetrics::StoreMetrics()
    : counters_({
          Shown{metrics_.counter("pdjob_store_queries_total",
                                 "Tokens of the blocks that workers asked for."),
                &StoreCounts::tokens_wanted},
          Shown{metrics_.counter("pdjob_store_hits_total",
                                 "Tokens of the blocks that the store offered to them."),
                &StoreCounts::tokens_given},
          Shown{metrics_.counter("pdjob_store_blocks_taken_total", "Blocks fetched from workers."),
                &StoreCounts::taken},
          Shown{metrics_.counter("pdjob_store_blocks_evicted_total",
                                 "Blocks that made room for others."),
                &StoreCounts::evicted},
          Shown{metrics_.counter("pdjob_store_blocks_corrupt_total",
                                 "Blocks dropped because their bytes no longer had their digest."),
                &StoreCounts::corrupt},
          Shown{metrics_.counter("pdjob_store_fetches_failed_total",
                                 "Fetches of blocks that failed."),
                &StoreCounts::fetches_failed},
          Shown{skipped(metrics_, "no_room"), &StoreCounts::no_room},
          Shown{skipped(metrics_, "too_many"), &StoreCounts::too_many},
          Shown{skipped(metrics_, "chain_broken"), &StoreCounts::useless},
      }),
      blocks_(metrics_.gauge("pdjob_store_blocks", "Blocks that can be fetched.")),
      bytes_used_(metrics_.gauge("pdjob_store_used_bytes",
                                 "Memory of blocks, also of those that are on their way.")),
      bytes_max_(metrics_.gauge("pdjob_store_max_bytes", "Memory that blocks may use.")),
      offers_(metrics_.gauge("pdjob_store_offers_alive", "Blocks being sent to workers.")),
      fetches_(metrics_.gauge("pdjob_store_fetches_alive", "Blocks being fetched from workers.")),
      queued_(metrics_.gauge("pdjob_store_fetches_queued", "Blocks that wait to be fetched.")) {}

StoreMetrics::Now StoreMetrics::now(const BlockStore& store) {
  return {.counts = store.counts(),
          .blocks = store.blocks(),
          .bytes_used = store.slots().bytes_used(),
          .bytes_max = store.slots().bytes_max(),
          .offers = store.offers(),
          .fetches = store.fetches(),
          .queued = store.queued()};
}

std::string StoreMetrics::text(const Now& now) {
  for (Shown& shown : counters_) {
    shown.counter.add(static_cast<double>(now.counts.*shown.count - told_.*shown.count));
  }
  told_ = now.counts;
  blocks_.set(static_cast<double>(now.blocks));
  bytes_used_.set(static_cast<double>(now.bytes_used));
  bytes_max_.set(static_cast<double>(now.bytes_max));
  offers_.set(static_cast<double>(now.offers));
  fetches_.set(static_cast<double>(now.fetches));
  queued_.set(static_cast<double>(now.queued));
  return metrics_.text();
}

}  // namespace pdjob::store
