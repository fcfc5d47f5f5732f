#include "store/store_metrics.h"

namespace pdjob::store {
namespace {

StoreMetrics::TierNow now_of(const BlockIndex& tier) {
  return {.blocks = tier.size(),
          .owners = tier.owners(),
          .evicted = tier.evicted(),
          .bytes_used = tier.slots().bytes_used(),
          .bytes_max = tier.slots().bytes_max()};
}

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
          Shown{metrics_.counter("pdjob_store_blocks_corrupt_total",
                                 "Blocks dropped because their bytes no longer had their digest."),
                &StoreCounts::corrupt},
          Shown{metrics_.counter("pdjob_store_fetches_failed_total",
                                 "Fetches of blocks that failed."),
                &StoreCounts::fetches_failed},
          Shown{skipped(metrics_, "no_room"), &StoreCounts::no_room},
          Shown{skipped(metrics_, "too_many"), &StoreCounts::too_many},
          Shown{skipped(metrics_, "chain_broken"), &StoreCounts::useless},
          Shown{metrics_.counter("pdjob_store_disk_blocks_read_total",
                                 "Blocks that came back from the disk into memory."),
                &StoreCounts::read},
          Shown{metrics_.counter("pdjob_store_disk_blocks_written_total",
                                 "Blocks that were written to the disk."),
                &StoreCounts::written},
          Shown{metrics_.counter("pdjob_store_disk_blocks_skipped_total",
                                 "Blocks that were not written, because the disk was slow, failed, "
                                 "or was full of blocks in use."),
                &StoreCounts::not_written},
          Shown{metrics_.counter("pdjob_store_disk_failures_total",
                                 "Reads and writes of the disk that failed."),
                &StoreCounts::disk_failed},
      }),
      memory_(metrics_, "memory"),
      disk_(metrics_, "disk"),
      offers_(metrics_.gauge("pdjob_store_offers_alive", "Blocks being sent to workers.")),
      fetches_(metrics_.gauge("pdjob_store_fetches_alive", "Blocks being fetched from workers.")),
      queued_(metrics_.gauge("pdjob_store_fetches_queued", "Blocks that wait to be fetched.")),
      unwritten_(metrics_.gauge("pdjob_store_writes_queued",
                                "Blocks that wait to be written to the disk, or are.")) {}

StoreMetrics::Tier::Tier(Metrics& metrics, const char* name)
    : blocks_(metrics.gauge("pdjob_store_blocks", "Blocks that can be fetched.", {{"tier", name}})),
      owners_(metrics.gauge("pdjob_store_owners",
                            "Tenants that have blocks. Each has an equal share.",
                            {{"tier", name}})),
      evicted_(metrics.counter("pdjob_store_blocks_evicted_total",
                               "Blocks that made room for others.", {{"tier", name}})),
      bytes_used_(metrics.gauge("pdjob_store_used_bytes",
                                "Bytes of blocks, also of those that are on their way.",
                                {{"tier", name}})),
      bytes_max_(
          metrics.gauge("pdjob_store_max_bytes", "Bytes that blocks may use.", {{"tier", name}})) {}

void StoreMetrics::Tier::show(const TierNow& now) {
  blocks_.set(static_cast<double>(now.blocks));
  owners_.set(static_cast<double>(now.owners));
  evicted_.add(static_cast<double>(now.evicted - evicted_told_));
  evicted_told_ = now.evicted;
  bytes_used_.set(static_cast<double>(now.bytes_used));
  bytes_max_.set(static_cast<double>(now.bytes_max));
}

StoreMetrics::Now StoreMetrics::now(const BlockStore& store) {
  return {.counts = store.counts(),
          .memory = now_of(store.memory()),
          .disk = now_of(store.disk()),
          .offers = store.offers(),
          .fetches = store.fetches(),
          .queued = store.queued(),
          .unwritten = store.unwritten()};
}

std::string StoreMetrics::text(const Now& now) {
  for (Shown& shown : counters_) {
    shown.counter.add(static_cast<double>(now.counts.*shown.count - told_.*shown.count));
  }
  told_ = now.counts;
  memory_.show(now.memory);
  disk_.show(now.disk);
  offers_.set(static_cast<double>(now.offers));
  fetches_.set(static_cast<double>(now.fetches));
  queued_.set(static_cast<double>(now.queued));
  unwritten_.set(static_cast<double>(now.unwritten));
  return metrics_.text();
}

}  // namespace pdjob::store
