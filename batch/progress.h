// Progress: what a person sees of a running batch, and the text of status.json. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "batch/store/ledger_file.h"
#include "common/time.h"

namespace pdjob::batch {

struct StageProgress {
  std::string name;
  size_t waiting = 0;     // Rows.
  size_t under_way = 0;   // Rows that processes have.
  uint64_t restarts = 0;  // Processes that died and were started again.
};

struct Progress {
  RowCounts rows;
  size_t in_flight = 0;
  size_t window = 0;
  size_t workers = 0;    // 0: unknown.
  uint64_t went_on = 0;  // Attempts that began with tokens of earlier ones.
  double rows_per_second = 0;
  double tokens_per_second = 0;
  std::string trouble;  // Why the server answers nothing now; empty: it does.
  std::vector<StageProgress> stages;
};

// Measures rates over the last seconds.
class Rates {
 public:
  // Call it about once a second.
  void look(Progress& progress, Instant now);

 private:
  struct Sample {
    Instant at;
    uint64_t rows = 0;
    uint64_t tokens = 0;
  };
  static constexpr size_t kSamples = 16;
  Sample samples_[kSamples];
  size_t seen_ = 0;
};

// "812 of 1000 rows, 3 failed; 1540 tokens/s; 4 workers; ~12 s left". `bar`: with a bar in front.
enum class ProgressForm { kLine, kBar };
std::string progress_text(const Progress& progress, ProgressForm form);

// A line for each stage; empty without stages.
std::string stages_text(const std::vector<StageProgress>& stages);

// `state`: "scanning", "starting", "running", "completed", "stopped" or "failed".
std::string status_json(const Progress& progress, const std::string& state,
                        const std::string& reason, int64_t updated_at);

// "1 h 12 min", "43 s".
std::string duration_text(double seconds);

}  // namespace pdjob::batch
