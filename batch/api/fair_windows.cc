#include "batch/api/fair_windows.h"

#include <algorithm>
#include <map>

namespace pdjob::batch {
namespace {

// A window that grows on trial shall not be cut at once.
constexpr size_t kRatioMax = 2;
constexpr size_t kSlack = 4;  // Rows.

bool wants_more(const RunShare& run) { return run.window > 0 && run.in_flight >= run.window; }

struct Part {
  size_t runs = 0;
  size_t rows = 0;
};

}  // namespace

std::vector<size_t> fair_windows(const std::vector<RunShare>& runs) {
  std::vector<size_t> windows;
  std::map<std::string, Part> parts;
  size_t all = 0;
  for (const RunShare& run : runs) {
    windows.push_back(run.window);
    if (wants_more(run)) {
      Part& part = parts[run.tenant];
      part.runs += 1;
      part.rows += run.window;
      all += run.window;
    }
  }
  size_t most = 0;
  size_t least = all;
  for (const auto& [tenant, part] : parts) {
    most = std::max(most, part.rows);
    least = std::min(least, part.rows);
  }
  if (most <= kRatioMax * least + kSlack) {
    return windows;
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (wants_more(runs[i])) {
      const Part& part = parts.at(runs[i].tenant);
      windows[i] = std::max<size_t>(all / parts.size() / part.runs, 1);
    }
  }
  return windows;
}

}  // namespace pdjob::batch
