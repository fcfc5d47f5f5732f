// The report of a batch: what happened to its rows, as Markdown and as one HTML file with pictures
// (SVG). The HTML file stands alone: it loads nothing and has no scripts. Values. Pure, except
// read_facts().
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/sqlite/database.h"

namespace pdjob::batch {

// Counts of numbers by size: four buckets for each doubling. Value.
class SizeCounts {
 public:
  static constexpr size_t kBuckets = 4 * 33;

  void add(uint64_t number);
  uint64_t total() const { return total_; }
  // Returns the number below which this part of all are, exact to a fifth; 0: there are none.
  uint64_t quantile(double part) const;
  // The buckets in use, from the first to the last.
  struct Bucket {
    uint64_t first = 0;  // Its smallest number.
    uint64_t count = 0;
  };
  std::vector<Bucket> buckets() const;

 private:
  std::array<uint64_t, kBuckets> counts_{};
  uint64_t total_ = 0;
};

struct ReportFacts {
  uint64_t answered = 0;
  uint64_t failed = 0;
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t attempts = 0;
  std::map<std::string, uint64_t> failures;        // By cause.
  std::map<std::string, uint64_t> stage_restarts;  // Of processes, by stage. The caller sets them.
  SizeCounts milliseconds;                         // Of answers.
  SizeCounts lengths;                              // Their completion tokens.
  int64_t began_at = 0;                            // The first end of a row; seconds since 1970.
  int64_t seconds = 0;                             // From the first end to the last.
  int64_t step = 1;                                // Seconds of each of these:
  struct Slice {
    uint64_t rows = 0;
    uint64_t tokens = 0;
  };
  std::vector<Slice> slices;
};

// Reads the table `answers`, once, in bounded memory.
Result<ReportFacts> read_facts(Database& database);
std::string report_markdown(const ReportFacts& facts);
std::string report_html(const ReportFacts& facts);

}  // namespace pdjob::batch
