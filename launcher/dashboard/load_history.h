// LoadHistory: what the dashboard draws over time, before somebody looked: a point for each second
// of the last ten minutes. Bounded. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/time.h"
#include "net/control/message.h"

namespace pdjob::launcher {

// A worker that serves.
struct LoadOfWorker {
  std::string engine_id;
  bool decodes = false;  // Its first tokens are what clients see.
  net::WorkerLoad load;
};

class LoadHistory {
 public:
  static constexpr size_t kPointsMax = 600;
  static constexpr Duration kInterval = std::chrono::seconds(1);

  // Adds a point: what happened since the look before. The first look adds none.
  void look(const std::vector<LoadOfWorker>& workers, Instant now);
  // {"interval_ms": 1000, "points": [[ttft_us, itl_us, queued, tokens_per_second], ...]}, the
  // newest last. null: no request had one.
  std::string json() const;

 private:
  struct Point {
    std::optional<uint64_t> ttft_us;
    std::optional<uint64_t> itl_us;
    uint64_t queued = 0;
    uint64_t tokens_per_second = 0;
  };

  std::map<std::string, net::WorkerLoad> before_;  // By engine id.
  Instant looked_at_{};
  std::deque<Point> points_;
};

}  // namespace pdjob::launcher
