// The EngineSupervisor core keeps one engine of another make as a member of its job. It starts the
// engine, waits until it is ready, warms it up, and registers it. From then on it watches the
// engine's progress, and in the end drains it. It carries no request. If the engine ends, so does
// the worker, and the launcher starts both again.
//
//   starting --> warming up --> serving --> draining --> ending --> gone
//      |             |             |           |            ^
//      |-------------|-------------|-----------|------------|
//
// An engine is judged by its progress. One that answers its health checks but makes no progress for
// the requests that it runs stands still. So does one that answers nothing. A standstill is only
// reported: routers send no new requests then, what runs goes on, and the launcher decides when the
// engine hangs. An engine that is slow to answer stands still only until it answers. Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "net/control/message.h"
#include "worker/foreign/engine_sample.h"
#include "worker/foreign/pace.h"

namespace pdjob::worker {

// Something of the engine that is switched on, and the first version that has it.
struct VersionNeed {
  std::string what;  // Of the job file.
  std::string since;
};

struct SupervisorRules {
  std::string make;          // For people: "vllm".
  bool warms_up = false;     // By a request that the worker sends.
  bool has_metrics = false;  // Otherwise its load and progress are unknown.
  // It is a node of an engine, and not the first one: it is asked nothing, and ends when it is
  // told.
  bool follows = false;
  // For so long after its last request an engine still keeps KV that others fetch. 0: it keeps
  // none.
  Duration lease{};
  Duration start_timeout = std::chrono::minutes(5);
  std::vector<VersionNeed> needs;  // An older engine does not serve.
};

// --- events
struct EngineExited {
  std::string how;    // "exit code 1"
  std::string cause;  // Likely; empty: unknown.
};
enum class Health { kWell, kUnwell, kSilent };
struct HealthAnswered {
  Health health = Health::kSilent;
};
struct VersionAnswered {
  std::string version;  // Empty: unknown.
};
struct WarmedUp {
  std::string error;  // Empty: it worked.
};
struct LoadAnswered {
  bool answered = false;
  std::optional<EngineSample> sample;  // Nothing: no answer that says it.
};
// One thread of the engine waited for a core for so long since the last such event. That time is
// none of its own.
struct EngineStarved {
  Duration waited{};
};
struct DrainAsked {
  Duration within{};  // The drain must be over then.
};
struct EndAsked {};  // At once.

using SupervisorEvent = std::variant<EngineExited, HealthAnswered, VersionAnswered, WarmedUp,
                                     LoadAnswered, EngineStarved, DrainAsked, EndAsked, TimePassed>;

// --- effects, to be done in order
struct StartEngine {};
struct AskHealth {};   // HealthAnswered follows.
struct AskVersion {};  // VersionAnswered follows.
struct WarmUp {};      // WarmedUp follows.
struct AskLoad {};     // LoadAnswered follows.
struct Serve {};       // Registers with the launcher.
struct TerminateEngine {};
// Kills the engine and all its processes. A second one kills the guard, too.
struct KillEngine {};
struct TellDrained {};
struct EndWorker {
  std::string error;  // Empty: all went well.
};
struct SupervisorNote {
  std::string text;
};

using SupervisorEffect =
    std::variant<StartEngine, AskHealth, AskVersion, WarmUp, AskLoad, Serve, TerminateEngine,
                 KillEngine, TellDrained, EndWorker, SupervisorNote>;

class EngineSupervisor {
 public:
  static constexpr Duration kPollInterval = std::chrono::milliseconds(500);
  static constexpr Duration kDrainPollInterval = std::chrono::milliseconds(200);
  static constexpr Duration kTerminateGrace = std::chrono::seconds(10);
  static constexpr Duration kKillGrace = std::chrono::seconds(5);
  static constexpr uint32_t kIdleSamples = 2;  // In a row, until a draining engine counts as idle.

  explicit EngineSupervisor(SupervisorRules rules) : rules_(std::move(rules)) {}

  // The first step starts the engine.
  void step(const SupervisorEvent& event, Instant now, std::vector<SupervisorEffect>& effects);
  Instant next_wakeup() const;

  net::WorkerLoad load(Instant now) const;

 private:
  using Turn = pdjob::Turn<SupervisorEffect>;
  enum class State { kNew, kStarting, kWarmingUp, kServing, kDraining, kEnding, kGone };

  void on(const EngineExited& event, Turn& turn);
  void on(const HealthAnswered& event, Turn& turn);
  void on(const VersionAnswered& event, Turn& turn);
  void on(const WarmedUp& event, Turn& turn);
  void on(const LoadAnswered& event, Turn& turn);
  void on(const EngineStarved& event, Turn& turn);
  void on(const DrainAsked& event, Turn& turn);
  void on(const EndAsked& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  void start(Turn& turn);
  void ask_health(Turn& turn);
  void next_poll(Turn& turn);
  void warm_up(Turn& turn);
  void serve(Turn& turn);
  void take(const EngineSample& sample, Turn& turn);
  void end_if_idle(Turn& turn);
  void terminate(Turn& turn);
  void kill(const std::string& error, Turn& turn);
  void finish(const std::string& error, Turn& turn);
  Duration standstill(Instant now) const;
  bool watched() const { return state_ == State::kServing || state_ == State::kDraining; }

  const SupervisorRules rules_;
  State state_ = State::kNew;
  Instant next_ask_ = kNever;
  Instant deadline_ = kNever;  // For the start, or of the end.
  bool draining_ = false;
  Duration lease_{};   // What a drain waits for.
  std::string error_;  // For EndWorker.

  EngineSample sample_;
  Pace pace_;
  // Each is kNever while all is well.
  Instant asked_at_ = kNever;      // A question without an answer.
  Instant silent_since_ = kNever;  // The first of the questions that failed.
  Instant unwell_since_ = kNever;
  Instant stuck_since_ = kNever;  // Requests run, and nothing has grown since.
  Instant quiet_since_ = kNever;  // It has run no request since.
  uint32_t idle_samples_ = 0;     // While draining.
};

}  // namespace pdjob::worker
