// EngineLog: the output of an engine of another make, bounded: the length of a line, the rate of
// bytes, and the last lines that it keeps for an error message. Bytes that a terminal would obey
// are replaced. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/time.h"

namespace pdjob::worker {

class EngineLog {
 public:
  // Lines that contain one of the `dull` texts are left out.
  explicit EngineLog(std::vector<std::string> dull = {}) : dull_(std::move(dull)) {}

  // Returns the lines to write, without their ends. A line that is too long is cut. Lines beyond
  // the rate are dropped and counted.
  std::vector<std::string> take(std::string_view bytes, Instant now);
  // The output has ended; the last line may have had no end.
  std::vector<std::string> finish(Instant now);

  // The last lines, including dropped ones.
  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }

 private:
  void end_line(Instant now, std::vector<std::string>& lines);

  std::vector<std::string> dull_;
  std::string line_;
  bool cut_ = false;
  bool returned_ = false;  // The last byte was a carriage return.
  std::deque<std::string> last_;
  Instant refilled_{};
  double allowance_ = 0;  // Bytes.
  bool started_ = false;
  uint64_t dropped_ = 0;  // Since the last line that was written.
};

}  // namespace pdjob::worker
