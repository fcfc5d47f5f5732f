// binding_bench measures late binding: what is gained when a worker gets a request only once it has
// room. Goodput is the highest rate at which 99 of 100 requests take at most kPatience. The bench
// runs the router's core before simulated workers, in virtual time. Requests have length 1 or 50.
// Each worker serves one at a time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <queue>
#include <vector>

#include "common/random.h"
#include "router/core/router.h"

namespace pdjob::router {
namespace {

constexpr size_t kWorkers = 16;
constexpr double kLong = 50;        // In units of a short request, which takes 1 ms.
constexpr double kLongShare = 0.1;  // The mean request takes 5.9 units.
constexpr double kPatience = 2 * kLong;
constexpr size_t kRequests = 60'000;

Instant at(double units) {
  return Instant{std::chrono::hours(1)} +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(units));
}

// Returns the P99 of the time from arrival to answer, with the workers busy for the share
// `utilisation` of their time.
double p99(const RouterConfig& config, double utilisation) {
  Router router(config, 1);
  Random random(7);
  std::vector<RouterEffect> effects;
  std::vector<net::WorkerEntry> entries;
  for (size_t i = 0; i < kWorkers; ++i) {
    entries.push_back(
        {.name = "w" + std::to_string(i), .engine_id = "e", .role = net::Role::kBoth, .port = 1});
  }
  router.step(WorkersChanged{entries}, at(0), effects);
  effects.clear();

  struct Ask {
    double arrived = 0;
    double length = 0;
  };
  std::map<RequestId, Ask> asks;
  std::map<WorkerId, double> busy_until;
  struct Done {
    double when;
    LegId leg;
    bool operator>(const Done& other) const { return when > other.when; }
  };
  std::priority_queue<Done, std::vector<Done>, std::greater<>> done;
  std::vector<double> took;
  double now = 0;
  const auto step = [&](const RouterEvent& event) {
    router.step(event, at(now), effects);
    for (const RouterEffect& effect : effects) {
      if (const auto* start = std::get_if<StartLeg>(&effect)) {
        double& until = busy_until[start->worker];  // It serves in order of arrival.
        until = std::max(until, now) + asks.at(start->leg.request).length;
        done.push({until, start->leg});
      }
    }
    effects.clear();
  };

  const double mean = 1 + kLongShare * (kLong - 1);
  const double rate = utilisation * kWorkers / mean;
  double next_arrival = 0;
  for (uint64_t arrived = 0; took.size() < kRequests;) {
    if (arrived < kRequests && (done.empty() || next_arrival < done.top().when)) {
      now = next_arrival;
      next_arrival += -std::log(1 - random.unit()) / rate;
      const RequestId id{++arrived};
      asks[id] = {.arrived = now, .length = random.chance(kLongShare) ? kLong : 1};
      // The router cannot tell long requests from short ones.
      step(RequestArrived{id, {.prompt_tokens = 1}});
    } else {
      const Done ended = done.top();
      done.pop();
      now = ended.when;
      took.push_back(now - asks.at(ended.leg.request).arrived);
      step(LegAnswered{ended.leg, 200});
      step(LegEnded{ended.leg});
    }
  }
  std::nth_element(took.begin(), took.begin() + kRequests * 99 / 100, took.end());
  return took[kRequests * 99 / 100];
}

double goodput(const RouterConfig& config) {
  double good = 0, bad = 1;
  while (bad - good > 0.005) {
    const double middle = (good + bad) / 2;
    (p99(config, middle) <= kPatience ? good : bad) = middle;
  }
  return good;
}

void run() {
  struct Row {
    const char* name;
    PolicyKind policy;
    uint32_t in_flight;
  };
  double base = 0;
  std::printf("%zu workers, lengths 1 (%.0f %%) and %.0f: share of their capacity at P99 <= %.0f\n",
              kWorkers, 100 * (1 - kLongShare), kLong, kPatience);
  for (const Row& row : {Row{"round_robin, push", PolicyKind::kRoundRobin, 0},
                         Row{"power_of_two, push", PolicyKind::kPowerOfTwo, 0},
                         Row{"least_loaded, push", PolicyKind::kLeastLoaded, 0},
                         Row{"round_robin, in_flight 1", PolicyKind::kRoundRobin, 1},
                         Row{"least_loaded, in_flight 2", PolicyKind::kLeastLoaded, 2}}) {
    RouterConfig config;
    config.decode_policy = row.policy;
    config.decode_in_flight = row.in_flight;
    config.requests_max = 1U << 30;
    config.queue_timeout = config.request_timeout = std::chrono::hours(1000);
    const double found = goodput(config);
    base = base == 0 ? found : base;
    std::printf("  %-28s %5.1f %%   %.2f x\n", row.name, 100 * found, found / base);
  }
}

}  // namespace
}  // namespace pdjob::router

int main() { pdjob::router::run(); }
