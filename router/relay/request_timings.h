// RequestTimings: where the time of requests went that have ended: the newest ones, and those of
// the last minutes that waited longest for their first token. Nothing in it is a word of a client.
// Bounded. Value.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/time.h"

namespace pdjob::router {

// What the router saw of a request. Zero: it did not happen.
struct RequestMoments {
  Instant arrived{};
  Instant legs_began{};
  Instant prefilled{};    // The prefill leg ended.
  Instant first_bytes{};  // Of the reply.
  Instant ended{};
  Duration kv_visible{};  // As the decode worker says: from the last computed row to the commit.
  bool stream = false;    // The reply's first bytes are its first token.
};

struct RequestPhases {
  Duration queue{};
  Duration prefill{};
  Duration kv{};
  Duration decode{};

  Duration wait() const { return queue + prefill + kv; }
};

// The phases add up to the time from the arrival to the end. A decode worker that prefills by
// itself has a prefill phase if the reply is a stream; otherwise it is a part of `decode`.
RequestPhases phases_of(const RequestMoments& moments);

struct RequestTiming {
  uint64_t number = 0;     // The router's own count.
  std::string request_id;  // Empty: the client chose it.
  std::string tenant;
  std::string prefill;  // The workers' names; empty: none.
  std::string decode;
  uint32_t attempts = 0;
  int status = 0;  // Of the reply; 0: none.
  const char* outcome = "";
  bool stream = false;
  Instant ended{};
  RequestPhases phases;
};

class RequestTimings {
 public:
  static constexpr size_t kNewestMax = 64;
  static constexpr size_t kSlowestMax = 16;
  static constexpr Duration kSlowFor = std::chrono::minutes(10);

  void add(RequestTiming timing);
  // {"requests": [...]}, the newest first, then those that are only among the slowest. `unix_now`:
  // seconds of the wall clock at `now`.
  std::string json(Instant now, int64_t unix_now) const;

 private:
  std::deque<RequestTiming> newest_;    // The newest is the last.
  std::vector<RequestTiming> slowest_;  // By wait, the longest first.
};

}  // namespace pdjob::router
