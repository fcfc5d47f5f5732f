// Measures what a fleet's size costs the cores of the launcher and of a router, on virtual time.
// Of the launcher: a job's start, heartbeats, and the loss of one worker in a hundred at once. Of
// the router: the choice of workers for a request. Sockets and encryption are not counted.
//
//   fleet_bench [--processes N] [--routers N] [--rate HEARTBEATS_PER_SECOND] [--seconds VIRTUAL]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <malloc.h>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "common/random.h"
#include "launcher/job/job.h"
#include "router/core/router.h"

namespace pdjob {
namespace {

size_t heap_bytes() { return mallinfo2().uordblks; }
double millis(Duration time) { return 1e3 * seconds(time); }

// --- the launcher

using namespace launcher;  // NOLINT: two rooms' words, and this file has both.

class Fleet {
 public:
  // Workers register before the routers do. `deaf`: routers come first, and confirm nothing until
  // all have come.
  Fleet(size_t processes, size_t routers, bool deaf = false)
      : job_(plan(processes, routers), JobTiming{}, "n"), deaf_(deaf) {
    step(Started{});
    for (const Process& process : job_.processes()) {
      engines_[process.name] = process.engine_id;
    }
    for (const bool router : {deaf, !deaf}) {
      for (const auto& [name, engine] : std::map(engines_)) {
        if (name.starts_with("router") == router) {
          register_as(name, engine);
        }
      }
    }
    deaf_ = false;
    run(std::exchange(unconfirmed_, {}));
    if (job_.state() != JobState::kReady) {
      std::fprintf(stderr, "the job is not ready: %s\n", job_.waiting_for().c_str());
      std::exit(1);
    }
    told_ = {};
  }

  // Every process beats once, at even distances over `within`.
  void beat_all(Duration within) {
    const Duration between = within / engines_.size();
    for (const auto& [name, engine] : engines_) {
      now_ += between;
      step(MessageArrived{
          name,
          net::HeartbeatSent{.name = name, .engine_id = engine, .load = {.requests_running = 3}}});
      pass();
    }
  }

  // So many workers crash within the same moment. Returns the virtual time until all serve again,
  // if a new process needs no time to start.
  Duration lose(size_t workers) {
    std::vector<std::pair<Incarnation, std::string>> dying;
    for (const Process& process : job_.processes()) {
      if (!process.is_router() && dying.size() < workers) {
        dying.emplace_back(process.incarnation, process.name);
      }
    }
    const Instant begun = now_;
    for (const auto& [incarnation, name] : dying) {
      step(ProcessExited{.incarnation = incarnation, .how = "signal 9 (Killed)", .crashed = true});
    }
    const auto serving = [&] {
      return std::ranges::all_of(job_.processes(), [](const Process& process) {
        return process.state == ProcessState::kReady;
      });
    };
    while (!serving()) {
      now_ = std::max(now_, std::min(job_.next_wakeup(), now_ + std::chrono::milliseconds(100)));
      step(TimePassed{});
    }
    return now_ - begun;
  }

  struct Told {
    size_t memberships = 0, entries = 0;
  };
  Told told() const { return told_; }

 private:
  static std::vector<ProcessPlan> plan(size_t processes, size_t routers) {
    std::vector<ProcessPlan> plan;
    for (size_t i = 0; i < processes; ++i) {
      if (i < routers) {
        plan.push_back({"router-" + std::to_string(i), net::Role::kRouter});
        continue;
      }
      const bool prefill = i % 2 == 1;
      plan.push_back({(prefill ? "prefill-" : "decode-") + std::to_string(i),
                      prefill ? net::Role::kPrefill : net::Role::kDecode});
    }
    return plan;
  }

  void register_as(const std::string& name, const std::string& engine) {
    step(MessageArrived{name,
                        net::Registered{.worker = {.engine_id = engine, .host = "h", .port = 1}}});
  }
  void pass() {
    if (job_.next_wakeup() <= now_) {
      step(TimePassed{});
    }
  }

  // Routers confirm at once, every probe succeeds at once, and a process registers as it starts.
  void step(const Event& event) { run({event}); }
  void run(std::deque<Event> events) {
    for (; !events.empty(); events.pop_front()) {
      std::vector<Effect> effects;
      job_.step(events.front(), now_, effects);
      for (const Effect& effect : effects) {
        if (const auto* probe = std::get_if<Probe>(&effect)) {
          events.emplace_back(ProbeSucceeded{probe->probe, 1});
        } else if (const auto* spawn = std::get_if<Spawn>(&effect)) {
          const bool again = engines_.contains(spawn->name);
          engines_[spawn->name] = spawn->engine_id;
          if (again) {
            events.emplace_back(MessageArrived{
                spawn->name,
                net::Registered{
                    .worker = {.engine_id = spawn->engine_id, .host = "h", .port = 1}}});
          }
        } else if (const auto* send = std::get_if<Send>(&effect)) {
          if (const auto* told = std::get_if<net::Membership>(&send->message)) {
            ++told_.memberships;
            told_.entries += told->workers.size();
            (deaf_ ? unconfirmed_ : events)
                .emplace_back(MessageArrived{
                    send->peer, net::MembershipApplied{engines_.at(send->peer), told->version}});
          }
        }
      }
    }
  }

  Job job_;
  Instant now_{std::chrono::hours(1)};
  bool deaf_;
  std::deque<Event> unconfirmed_;
  std::map<std::string, std::string> engines_;  // Engine ids, by name.
  Told told_;
};

struct Asked {
  size_t processes = 0, routers = 1;
  double rate = 2, seconds = 5;
};

// Seconds until the fleet serves, if its routers confirm late.
double late_start(const Asked& asked) {
  const Instant begun = real_now();
  const Fleet fleet(asked.processes, asked.routers, /*deaf=*/true);
  return seconds(real_now() - begun);
}

void measure_launcher(const Asked& asked) {
  const double late = late_start(asked);
  const size_t heap = heap_bytes();
  const Instant begun = real_now();
  Fleet fleet(asked.processes, asked.routers);
  const Instant ready = real_now();
  const double bytes =
      static_cast<double>(heap_bytes() - heap) / static_cast<double>(asked.processes);
  const int rounds = std::max(static_cast<int>(asked.rate * asked.seconds), 1);
  const auto interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1 / asked.rate));
  for (int round = 0; round < rounds; ++round) {
    fleet.beat_all(interval);
  }
  const double beaten = seconds(real_now() - ready);
  const Instant dying = real_now();
  const size_t lost = std::max<size_t>(asked.processes / 100, 1);
  const Fleet::Told before = fleet.told();
  const Duration healed = fleet.lose(lost);
  const Duration healing = real_now() - dying;
  std::printf(
      "launcher %6zu processes, %zu routers: start %.2f s, or %.2f s if routers confirm last; %.1f "
      "KiB each; heartbeat %.2f us, %.2f %% of a core at %g/s; %zu die at once: %.2f s until they "
      "serve again, of which the core "
      "computes %.0f ms, and %zu memberships of %zu entries\n",
      asked.processes, asked.routers, seconds(ready - begun), late, bytes / 1024,
      1e6 * beaten / rounds / static_cast<double>(asked.processes),
      100 * beaten / (rounds / asked.rate), asked.rate, lost, seconds(healed), millis(healing),
      fleet.told().memberships - before.memberships, fleet.told().entries - before.entries);
}

// --- a router

void measure_router(size_t workers, router::PolicyKind policy, const char* name) {
  router::RouterConfig config;
  config.prefill_policy = config.decode_policy = policy;
  config.requests_max = 1U << 30;
  const size_t heap = heap_bytes();
  router::Router router(config, 1);
  Random random(7);
  Instant now{std::chrono::hours(1)};
  std::vector<net::WorkerEntry> entries;
  for (size_t i = 0; i < workers; ++i) {
    const bool prefill = i % 2 == 1;
    entries.push_back({.name = (prefill ? "prefill-" : "decode-") + std::to_string(i),
                       .engine_id = "e" + std::to_string(i),
                       .role = prefill ? net::Role::kPrefill : net::Role::kDecode,
                       .host = "10.0.0.1",
                       .port = static_cast<uint16_t>(1 + i % 60'000),
                       .model = "m",
                       .kv_address = "{}"});
  }
  std::vector<router::RouterEffect> effects;
  std::deque<router::LegId> running;
  const auto step = [&](const router::RouterEvent& event) {
    now += std::chrono::microseconds(1);
    router.step(event, now, effects);
    for (const router::RouterEffect& effect : effects) {
      if (const auto* start = std::get_if<router::StartLeg>(&effect)) {
        running.push_back(start->leg);
      }
    }
    effects.clear();
  };
  const Instant begun = real_now();
  step(router::WorkersChanged{entries});
  const Duration joined = real_now() - begun;
  const double bytes = static_cast<double>(heap_bytes() - heap) / static_cast<double>(workers);
  // One worker more in flight for each ten, so that loads differ.
  const size_t in_flight = 2 * std::max<size_t>(workers / 10, 8);
  uint64_t asked = 0;
  const auto ask = [&] {
    router::RequestFacts facts{.model = "m", .prompt_tokens = 500, .output_tokens = 100};
    facts.session = random.next();
    for (int block = 0; block < 8; ++block) {
      facts.blocks.push_back(block < 4 ? 1000 * random.below(64) + block : random.next());
    }
    step(router::RequestArrived{RequestId{++asked}, std::move(facts)});
  };
  const auto end_one = [&] {
    const router::LegId leg = running.front();
    running.pop_front();
    step(router::LegAnswered{leg, 200});
    step(router::LegEnded{leg, leg.stage == router::Stage::kPrefill});
  };
  while (running.size() < in_flight && asked < in_flight) {
    ask();
  }
  const Instant warm = real_now();
  const uint64_t already = asked;
  while (seconds(real_now() - warm) < 1 && asked < already + 200'000) {
    ask();
    while (running.size() >= in_flight) {
      end_one();
    }
  }
  const double each = seconds(real_now() - warm) / static_cast<double>(asked - already);
  // A worker comes back as another engine: the shell tells the core all that are there.
  entries.back().engine_id = "anew";
  const Instant changed = real_now();
  step(router::WorkersChanged{entries});
  std::printf(
      "router   %6zu workers, %-13s %7.2f us a request, %8.0f requests/s a core; %.1f KiB a "
      "worker, all told in %.1f ms, one changed in %.2f ms\n",
      workers, name, 1e6 * each, 1 / each, bytes / 1024, millis(joined),
      millis(real_now() - changed));
}

double option(int argc, char** argv, std::string_view name, double value) {
  for (int i = 1; i + 1 < argc; ++i) {
    value = argv[i] == name ? std::strtod(argv[i + 1], nullptr) : value;
  }
  return value;
}

void run(int argc, char** argv) {
  const auto asked = static_cast<size_t>(option(argc, argv, "--processes", 0));
  const std::vector<std::pair<size_t, size_t>> usual{{40, 1}, {400, 2}, {4000, 4}, {27'000, 16}};
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const auto& [processes, routers] :
       asked > 1 ? std::vector<std::pair<size_t, size_t>>{{asked, 1}} : usual) {
    measure_launcher({.processes = processes,
                      .routers = static_cast<size_t>(
                          option(argc, argv, "--routers", static_cast<double>(routers))),
                      .rate = option(argc, argv, "--rate", 2),
                      .seconds = option(argc, argv, "--seconds", 5)});
    if (processes > limits::kWorkersMax) {
      std::printf("router   %6zu workers: a router knows at most %zu\n", processes,
                  limits::kWorkersMax);
      continue;
    }
    for (const auto& [policy, name] :
         {std::pair(router::PolicyKind::kRoundRobin, "round_robin"),
          std::pair(router::PolicyKind::kPowerOfTwo, "power_of_two"),
          std::pair(router::PolicyKind::kLeastLoaded, "least_loaded"),
          std::pair(router::PolicyKind::kPrefixAware, "prefix_aware")}) {
      measure_router(processes, policy, name);
    }
  }
}

}  // namespace
}  // namespace pdjob

int main(int argc, char** argv) {
  pdjob::run(argc, argv);
  return 0;
}
