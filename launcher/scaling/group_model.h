// GroupModel: what the workers of one group can do and what is asked of them, measured from their
// heartbeats. It says how many workers the load needs.
//
//   speed        tokens per second of computing, of one worker
//   ITL(c)       a + b c: the time between two tokens of a request, with c requests at a worker
//   arrival      tokens per second that come to the group to be computed, and that it generates,
//                and their trends
//
// Prefill workers decode for decode workers that are busy, and decode workers compute prompts that
// are bypassed. A group is not measured by such work: prompts count for prefill workers, and
// generated tokens for ITL.
//
// The workers that compute prompts are servers of one queue, because routers give a prompt to the
// one that has the least to do. A worker that decodes shares its steps: at a load r, a token takes
// (a + b) / (1 - r). Both are what queueing theory gives for random arrivals; they bend where real
// workers do, and the measured latencies correct them (autoscaler.h).
//
// An engine of another make does not tell how fast it computes. Then the rate of prompts at which
// TTFT was missed is what a worker cannot do. It is forgotten slowly, because prompts change. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "common/two_windows.h"
#include "launcher/plan/scaling_config.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct WorkerSample {
  std::string engine_id;
  net::WorkerLoad load;
};

// A value that is measured again and again: where it is, and where it goes. Value.
class Trend {
 public:
  void add(double value, Instant now);
  double level() const { return level_; }
  // Not below zero. It looks ahead only upwards: a fall is believed when it has happened.
  double ahead(Duration duration) const;

 private:
  double level_ = 0;
  double slope_ = 0;  // Per second.
  Instant last_{};
  bool begun_ = false;
};

class GroupModel {
 public:
  GroupModel(net::Role role, const GroupScaling& target) : role_(role), target_(target) {}

  // The workers that serve, about twice a second. `held`: requests that wait for one of them.
  void take(const std::vector<WorkerSample>& workers, Instant now, uint64_t held = 0);

  struct Need {
    double workers = 0;
    std::string because;  // "12 requests at 4 a worker"; empty for no need.
  };
  // How many workers hold the targets in `ahead` from now, with so much to spare (0.7: at 70 % of
  // them).
  Need need(Duration ahead, double ease) const;

  // How many workers could have had a request at the same time, of late; at least 1. No request is
  // computed by two workers of a group, so more of them shorten nothing. Infinite: the engines do
  // not tell.
  double useful() const;
  // The workers missed the target on TTFT just now.
  void missed_ttft();

  // Means of the last seconds.
  struct Mean {
    Duration value{};
    uint64_t count = 0;  // 0: unknown.
  };
  Mean ttft() const { return mean(&Sums::ttft_us, &Sums::ttft_count); }
  Mean itl() const { return mean(&Sums::itl_us, &Sums::itl_count); }
  // No worker has or had a request since the last sample.
  bool idle() const { return idle_; }

 private:
  struct Sums {
    Instant at{};
    uint64_t ttft_us = 0, ttft_count = 0, itl_us = 0, itl_count = 0;
  };
  struct Shape {
    double ease = 1;
    double rate = 0;       // Tokens per second that arrive to be computed.
    double prompts = 0;    // Per second, that were computed.
    double generated = 0;  // Tokens per second.
    double requests = 0;   // At the group's workers, queued ones included.
    double rows = 0;
    double backlog = 0;  // Prompt tokens that wait.
  };
  Mean mean(uint64_t Sums::* sum, uint64_t Sums::* count) const;
  Need need_of(const Shape& shape) const;
  Need for_ttft(const Shape& shape) const;
  Need for_ttft_by_misses(const Shape& shape) const;  // While the speed is unknown.
  Need for_itl(const Shape& shape) const;
  Need for_kv(const Shape& shape) const;

  void measure_computing(uint64_t tokens, uint64_t decoded, uint64_t prompts, double busy);

  const net::Role role_;
  const GroupScaling target_;
  std::map<std::string, net::WorkerLoad> last_;  // By engine id.
  Instant last_at_{};
  Trend rate_;
  Trend prompts_;
  Trend generated_;
  Trend requests_;
  Trend rows_;
  double speed_ = 0;           // 0: unknown.
  double prompts_missed_ = 0;  // Per second and worker: the least with which TTFT was missed.
  double prompt_tokens_ = 0;   // Of a request, on average; 0: unknown.
  FadingLine itl_by_requests_;
  double rows_per_worker_ = 0;
  double backlog_ = 0;
  double running_max_ = 0;  // Requests that ran at a worker while others queued there; 0: unknown.
  std::deque<Sums> window_;
  std::deque<std::pair<Instant, double>> present_;  // Requests, with those that were held.
  bool tells_requests_ = false;
  bool idle_ = true;
};

}  // namespace pdjob::launcher
