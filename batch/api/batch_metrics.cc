#include "batch/api/batch_metrics.h"

#include <utility>

namespace pdjob::batch {
namespace {

constexpr BatchState kAlive[] = {BatchState::kValidating, BatchState::kInProgress,
                                 BatchState::kFinalizing, BatchState::kCancelling};
constexpr BatchState kEnded[] = {BatchState::kCompleted, BatchState::kFailed, BatchState::kExpired,
                                 BatchState::kCancelled};

Counter rows(Metrics& metrics, const char* outcome) {
  return metrics.counter("pdjob_batch_rows_total", "Rows that are on disk, by outcome.",
                         {{"outcome", outcome}});
}

}  // namespace

BatchMetrics::BatchMetrics()
    : rows_answered_(rows(metrics_, "answered")),
      rows_failed_(rows(metrics_, "failed")),
      row_retries_(metrics_.counter("pdjob_batch_row_retries_total",
                                    "Attempts beyond the first one of a row.")),
      generation_tokens_(metrics_.counter("pdjob_batch_generation_tokens_total",
                                          "Tokens of the answers that are on disk.")),
      failures_(
          metrics_.counter("pdjob_batch_failures_total",
                           "Failures to check, run or finish a batch; most are tried again.")),
      rows_in_flight_(
          metrics_.gauge("pdjob_batch_rows_in_flight", "Attempts that the routers have.")),
      files_(metrics_.gauge("pdjob_batch_files", "Files of clients, and of results.")),
      file_bytes_(metrics_.gauge("pdjob_batch_file_bytes",
                                 "Bytes of all files, and of uploads under way.")),
      batch_bytes_(metrics_.gauge("pdjob_batch_answer_bytes",
                                  "Bytes of ledgers and answers of batches that have not ended.")),
      uploads_(metrics_.gauge("pdjob_batch_uploads_alive", "Uploads under way.")),
      downloads_(metrics_.gauge("pdjob_batch_downloads_alive", "Downloads under way.")) {
  for (const BatchState state : kAlive) {
    alive_.emplace(state, metrics_.gauge("pdjob_batch_batches", "Batches that have not ended.",
                                         {{"status", to_string(state)}}));
  }
  for (const BatchState state : kEnded) {
    ended_.emplace(state, metrics_.counter("pdjob_batch_batches_total", "Batches that have ended.",
                                           {{"status", to_string(state)}}));
  }
}

void BatchMetrics::raise(Counter& counter, uint64_t& told, uint64_t now) {
  counter.add(static_cast<double>(now - std::exchange(told, now)));
}

std::string BatchMetrics::text(const Now& now) {
  raise(rows_answered_, told_.answered, now.totals.answered);
  raise(rows_failed_, told_.failed, now.totals.failed);
  raise(row_retries_, told_.retries, now.totals.retries);
  raise(generation_tokens_, told_.completion_tokens, now.totals.completion_tokens);
  raise(failures_, failures_told_, now.failures);
  rows_in_flight_.set(static_cast<double>(now.rows_in_flight));
  for (auto& [state, gauge] : alive_) {
    const auto found = now.alive.find(state);
    gauge.set(found == now.alive.end() ? 0 : static_cast<double>(found->second));
  }
  for (auto& [state, counter] : ended_) {
    if (const auto found = now.ended.find(state); found != now.ended.end()) {
      raise(counter, ended_told_[state], found->second);
    }
  }
  files_.set(static_cast<double>(now.files));
  file_bytes_.set(static_cast<double>(now.file_bytes));
  batch_bytes_.set(static_cast<double>(now.batch_bytes));
  uploads_.set(static_cast<double>(now.uploads));
  downloads_.set(static_cast<double>(now.downloads));
  return metrics_.text();
}

}  // namespace pdjob::batch
