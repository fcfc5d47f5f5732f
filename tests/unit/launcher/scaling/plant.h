// Plant: a simple model of workers, for tests of the autoscaler: prompts queue at prefill workers,
// tokens share the steps of decode workers, new workers wait for room and take a while, and those
// that leave finish what they have. Test double. Value.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "launcher/scaling/autoscaler.h"

namespace pdjob::launcher {

struct PlantSpec {
  double prompt_tokens = 100;  // Mean; exponential.
  double output_tokens = 50;
  double prefill_speed = 1000;  // Tokens per second.
  double itl_alone = 0.0;       // Of decode: a + b c.
  double itl_per_request = 0.01;
  double kv_rows = 100000;
  Duration start_time = std::chrono::seconds(3);
  bool tells_speed = true;  // Engines of another make do not.
};

class Plant {
 public:
  static constexpr double kStep = 0.05;  // Seconds.

  Plant(const PlantSpec& work, uint64_t seed, uint32_t prefill, uint32_t decode)
      : spec(work), random_(seed) {
    resize(kPrefill, prefill, true);
    resize(kDecode, decode, true);
  }

  enum Role { kPrefill = 0, kDecode = 1 };

  // Advances by kStep, with so many requests per second on average.
  void advance(double requests_per_second) {
    now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kStep));
    double due = requests_per_second * kStep;
    while (random_.unit() < due) {
      due -= 1;
      send();
    }
    give_places();
    for (std::list<Worker>& group : groups_) {
      for (auto worker = group.begin(); worker != group.end();) {
        worker->starts_in -= worker->placed && worker->starts_in > 0 ? kStep : 0;
        const bool gone = worker->leaving && worker->requests.empty();
        worker = gone ? group.erase(worker) : std::next(worker);
      }
    }
    hand_out(arrivals_, groups_[kPrefill]);
    count(kPrefill);
    for (Worker& worker : groups_[kPrefill]) {
      compute_prompts(worker);
    }
    hand_out(prefilled_, groups_[kDecode]);
    count(kDecode);
    for (Worker& worker : groups_[kDecode]) {
      decode(worker);
    }
  }

  // One more request arrives.
  void send() {
    arrivals_.push_back({.prompt = exponential(spec.prompt_tokens),
                         .output = std::max(1.0, exponential(spec.output_tokens)),
                         .arrived = now});
    ++arrived;
  }

  void apply(const std::vector<Decision>& decisions) {
    for (const Decision& each : decisions) {
      resize(static_cast<Role>(each.group), each.to, false);
    }
  }
  void resize(Role role, uint32_t to, bool at_once) {
    std::list<Worker>& group = groups_[role];
    wanted[role] = to;
    int64_t missing = to;
    for (const Worker& worker : group) {
      missing -= worker.leaving ? 0 : 1;
    }
    for (; missing > 0; --missing) {
      const double wait = std::chrono::duration<double>(spec.start_time).count();
      group.push_back(
          {.id = std::to_string(++made_), .starts_in = at_once ? 0 : wait, .placed = at_once});
    }
    for (; missing < 0; ++missing) {
      Worker* least = nullptr;
      for (Worker& worker : group) {
        const auto less = [&] {
          return std::tuple(worker.placed, worker.starts_in <= 0, worker.requests.size()) <
                 std::tuple(least->placed, least->starts_in <= 0, least->requests.size());
        };
        least = worker.leaving ? least : least == nullptr || less() ? &worker : least;
      }
      least->leaving = true;
    }
  }

  Observation look() const {
    Observation seen;
    for (const Role role : {kPrefill, kDecode}) {
      GroupSample& sample = seen.groups.emplace_back();
      sample.wanted = wanted[role];
      for (const Worker& worker : groups_[role]) {
        sample.leaving += worker.leaving ? 1 : 0;
        sample.coming += !worker.leaving && worker.placed && worker.starts_in > 0 ? 1 : 0;
        sample.waiting += !worker.leaving && !worker.placed ? 1 : 0;
        if (!worker.leaving && worker.starts_in <= 0) {
          sample.workers.push_back({worker.id, load_of(worker, role)});
        }
        seen.alive += worker.requests.size();
      }
      sample.lack = sample.waiting > 0 ? "all nodes are full" : "";
    }
    seen.held = arrivals_.size() + prefilled_.size();
    seen.alive += seen.held;
    return seen;
  }

  // Of the last second: means.
  double take_ttft() { return take(ttft_); }
  double take_itl() { return take(itl_); }

  // Since the last call: the part of the time in which the workers of the role had work.
  double take_use(Role role) {
    const double value = std::exchange(busy_[role], 0) / std::max(kStep, there_[role]);
    there_[role] = 0;
    return value;
  }
  uint64_t waiting(Role role) const { return groups_[role].size() - placed(role); }
  uint64_t placed(Role role) const {
    return static_cast<uint64_t>(std::ranges::count_if(groups_[role], &Worker::placed));
  }

  PlantSpec spec;
  uint64_t room = 1000;  // For workers.
  Instant now{std::chrono::seconds(1000)};
  uint32_t wanted[2] = {};
  uint64_t arrived = 0;
  uint64_t finished = 0;
  double worker_seconds = 0;

 private:
  struct Request {
    double prompt = 0;
    double output = 0;
    Instant arrived{};
    bool first = true;
  };
  struct Worker {
    std::string id;
    double starts_in = 0;
    bool placed = false;
    bool leaving = false;
    std::deque<Request> requests;
    net::WorkerLoad totals{};
  };
  struct Mean {
    double sum = 0;
    uint64_t count = 0;
  };

  // The roles take turns.
  void give_places() {
    const auto next = [](std::list<Worker>& group) {
      return std::ranges::find_if(group,
                                  [](const Worker& one) { return !one.placed && !one.leaving; });
    };
    for (bool found = true; found;) {
      found = false;
      for (std::list<Worker>& group : groups_) {
        const auto worker = next(group);
        if (worker != group.end() && placed(kPrefill) + placed(kDecode) < room) {
          worker->placed = found = true;
        }
      }
    }
  }
  void count(Role role) {
    const auto working = [](const Worker& one) { return !one.requests.empty(); };
    const auto busy = std::ranges::count_if(groups_[role], working);
    const double there = kStep * static_cast<double>(placed(role));
    worker_seconds += there;
    there_[role] += there;
    busy_[role] += kStep * static_cast<double>(busy);
  }
  double exponential(double mean) { return -mean * std::log(1 - random_.unit()); }
  static double take(Mean& mean) {
    const double value = mean.count == 0 ? 0 : mean.sum / static_cast<double>(mean.count);
    mean = {};
    return value;
  }

  static void hand_out(std::deque<Request>& from, std::list<Worker>& to) {
    while (!from.empty()) {
      Worker* best = nullptr;
      for (Worker& worker : to) {
        const bool open = !worker.leaving && worker.starts_in <= 0;
        best = open && (best == nullptr || worker.requests.size() < best->requests.size()) ? &worker
                                                                                           : best;
      }
      if (best == nullptr) {
        return;
      }
      best->requests.push_back(from.front());
      from.pop_front();
    }
  }

  void compute_prompts(Worker& worker) {
    double left = spec.prefill_speed * kStep;
    while (left > 0 && !worker.requests.empty()) {
      Request& request = worker.requests.front();
      const double done = std::min(left, request.prompt);
      request.prompt -= done;
      left -= done;
      worker.totals.tokens_computed += static_cast<uint64_t>(std::lround(done));
      worker.totals.busy_us += static_cast<uint64_t>(1e6 * done / spec.prefill_speed);
      if (request.prompt <= 0) {
        const double ttft = std::chrono::duration<double>(now - request.arrived).count();
        ++worker.totals.ttft_count;
        worker.totals.ttft_sum_us += static_cast<uint64_t>(1e6 * ttft);
        ttft_.sum += ttft;
        ++ttft_.count;
        prefilled_.push_back(request);
        worker.requests.pop_front();
      }
    }
  }

  void decode(Worker& worker) {
    const auto running = static_cast<double>(worker.requests.size());
    if (running == 0) {
      return;
    }
    const double itl = spec.itl_alone + spec.itl_per_request * running;
    const double tokens = kStep / itl;  // Of each request.
    worker.totals.busy_us += static_cast<uint64_t>(1e6 * kStep);
    const auto count = static_cast<uint64_t>(tokens * running + random_.unit());
    worker.totals.tokens_computed += count;
    worker.totals.itl_count += count;
    worker.totals.itl_sum_us += static_cast<uint64_t>(1e6 * itl) * count;
    itl_.sum += itl * static_cast<double>(count);
    itl_.count += count;
    std::erase_if(worker.requests, [&](Request& request) {
      request.output -= tokens;
      finished += request.output <= 0 ? 1 : 0;
      return request.output <= 0;
    });
  }

  net::WorkerLoad load_of(const Worker& worker, Role role) const {
    net::WorkerLoad load = worker.totals;
    const auto count = static_cast<uint32_t>(worker.requests.size());
    load.requests_running = role == kPrefill ? std::min(1U, count) : count;
    load.requests_queued = count - load.requests_running;
    for (const Request& request : worker.requests) {
      load.tokens_queued += role == kPrefill ? static_cast<uint64_t>(request.prompt) : 0;
    }
    if (!spec.tells_speed) {
      load.tokens_computed = load.busy_us = load.tokens_queued = 0;
    }
    load.kv_rows_used = count * static_cast<uint64_t>(spec.prompt_tokens);
    load.kv_rows_max = static_cast<uint64_t>(spec.kv_rows);
    return load;
  }

  Random random_;
  std::list<Worker> groups_[2];
  std::deque<Request> arrivals_;
  std::deque<Request> prefilled_;
  Mean ttft_;
  Mean itl_;
  uint64_t made_ = 0;
  double busy_[2] = {};  // Seconds of workers.
  double there_[2] = {};
};

}  // namespace pdjob::launcher
