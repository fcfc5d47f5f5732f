// BatchMetrics: the metrics of the Batch API's process. They name no tenant, so that everybody may
// read them. Counters begin with the process. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "batch/batch_run.h"
#include "batch/catalog/api_records.h"
#include "common/metrics.h"

namespace pdjob::batch {

class BatchMetrics {
 public:
  BatchMetrics();

  struct Now {
    RunTotals totals;                      // Since the process began.
    std::map<BatchState, uint64_t> alive;  // Batches that have not ended.
    std::map<BatchState, uint64_t> ended;  // Since the process began.
    uint64_t failures = 0;                 // LiveBatches::failures().
    size_t rows_in_flight = 0;
    size_t files = 0;
    uint64_t file_bytes = 0;  // Those of uploads under way count, too.
    uint64_t batch_bytes = 0;
    size_t uploads = 0;
    size_t downloads = 0;
  };
  // The text for Prometheus. Requires: counts never fall.
  std::string text(const Now& now);

 private:
  static void raise(Counter& counter, uint64_t& told, uint64_t now);

  Metrics metrics_;
  Counter rows_answered_;
  Counter rows_failed_;
  Counter row_retries_;
  Counter generation_tokens_;
  Counter failures_;
  Gauge rows_in_flight_;
  std::map<BatchState, Gauge> alive_;
  std::map<BatchState, Counter> ended_;
  Gauge files_;
  Gauge file_bytes_;
  Gauge batch_bytes_;
  Gauge uploads_;
  Gauge downloads_;
  RunTotals told_;
  std::map<BatchState, uint64_t> ended_told_;
  uint64_t failures_told_ = 0;
};

}  // namespace pdjob::batch
