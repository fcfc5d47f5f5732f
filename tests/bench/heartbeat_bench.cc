// Measures what heartbeats cost the Job core. Simulated processes beat so many times a second, on
// virtual time. Prints the share of a core for each size.
//
//   heartbeat_bench [--processes N] [--rate HEARTBEATS_PER_SECOND] [--seconds VIRTUAL_SECONDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/os/real_clock.h"
#include "launcher/job/job.h"

namespace pdjob::launcher {
namespace {

class JobOfSize {
 public:
  explicit JobOfSize(size_t processes) : job_(plan(processes), JobTiming{}, "n") {
    step(Started{});
    for (const Process& process : job_.processes()) {
      names_.push_back(process.name);
      engine_ids_.push_back(process.engine_id);
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      step(MessageArrived{
          names_[i],
          net::Registered{.worker = {.engine_id = engine_ids_[i], .host = "h", .port = 1}}});
    }
    if (job_.state() != JobState::kReady) {
      std::fprintf(stderr, "the job is not ready: %s\n", job_.waiting_for().c_str());
      std::exit(1);
    }
  }

  // Every process beats once, at even distances over `within`.
  void beat_all(Duration within) {
    const Duration between = within / names_.size();
    for (size_t i = 0; i < names_.size(); ++i) {
      now_ += between;
      step(MessageArrived{names_[i], net::HeartbeatSent{.name = names_[i],
                                                        .engine_id = engine_ids_[i],
                                                        .load = {.requests_running = 3}}});
      if (job_.next_wakeup() <= now_) {
        step(TimePassed{});
      }
    }
  }

 private:
  static std::vector<ProcessPlan> plan(size_t processes) {
    std::vector<ProcessPlan> plan = {{"router-0", net::Role::kRouter}};
    for (size_t i = 1; i < processes; ++i) {
      const bool prefill = i % 2 == 1;
      plan.push_back({(prefill ? "prefill-" : "decode-") + std::to_string(i),
                      prefill ? net::Role::kPrefill : net::Role::kDecode});
    }
    return plan;
  }

  // The router confirms at once, and every probe succeeds at once.
  void step(const Event& event) {
    std::vector<Effect> effects;
    job_.step(event, now_, effects);
    for (const Effect& effect : effects) {
      if (const auto* probe = std::get_if<Probe>(&effect)) {
        step(ProbeSucceeded{probe->probe, 1});
      } else if (const auto* send = std::get_if<Send>(&effect)) {
        if (const auto* told = std::get_if<net::Membership>(&send->message)) {
          step(MessageArrived{send->peer,
                              net::MembershipApplied{engine_ids_.front(), told->version}});
        }
      }
    }
  }

  Job job_;
  Instant now_{std::chrono::hours(1)};
  std::vector<std::string> names_;
  std::vector<std::string> engine_ids_;
};

void measure(size_t processes, double rate, double virtual_seconds) {
  const Instant begun = real_now();
  JobOfSize job(processes);
  const Instant ready = real_now();
  const auto rounds = static_cast<int>(rate * virtual_seconds);
  const auto interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1 / rate));
  for (int round = 0; round < rounds; ++round) {
    job.beat_all(interval);
  }
  const double taken = seconds(real_now() - ready);
  const double beats = rounds * static_cast<double>(processes);
  std::printf("%6zu processes: start %.3f s; a heartbeat %.2f us; at %g/s each %.2f %% of a core\n",
              processes, seconds(ready - begun), 1e6 * taken / beats, rate,
              100 * taken / virtual_seconds);
}

double option(int argc, char** argv, std::string_view name, double value) {
  for (int i = 1; i + 1 < argc; ++i) {
    value = argv[i] == name ? std::strtod(argv[i + 1], nullptr) : value;
  }
  return value;
}

}  // namespace
}  // namespace pdjob::launcher

int main(int argc, char** argv) {
  using pdjob::launcher::measure;
  using pdjob::launcher::option;
  const double rate = option(argc, argv, "--rate", 2);
  const double virtual_seconds = option(argc, argv, "--seconds", 5);
  const auto asked = static_cast<size_t>(option(argc, argv, "--processes", 0));
  for (const size_t processes : {size_t{40}, size_t{400}, size_t{4000}}) {
    measure(asked > 1 ? asked : processes, rate, virtual_seconds);
    if (asked > 1) {
      break;
    }
  }
  return 0;
}
