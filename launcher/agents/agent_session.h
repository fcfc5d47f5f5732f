// AgentSession: the core of an agent. It serves one launcher at a time, and decides when all that a
// launcher started ends: when the launcher says so, when it is lost, or when a new one comes.
//
//   joining --(Welcome)--> serving --(lost)--> orphaned
//      ^                     |  ^                | |
//      |------(ended)--------|  |--(heard again)-| |
//      |-----------------(orphan timeout)----------|
//
// Without an orphan timeout, a lost launcher ends everything at once. A launcher whose job has
// ended may say that the processes stay warm: then they are orphans for the time that it says. An
// orphaned agent keeps its processes, says Hello to whoever listens, and goes on if the same
// launcher answers; then it tells what happened meanwhile, and again what may have been lost with
// the connection. A later launcher of the same run of the job adopts them: its number must be
// higher than any that the agent has seen. An earlier one is ignored from then on. Another job, and
// a launcher that only looks, are refused until the orphans have ended or were adopted. Warm ones
// yield to another job.
//
// What an order means is its shell's business. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "launcher/agents/agent_message.h"

namespace pdjob::launcher {

// --- events
struct LauncherConnected {};
struct LauncherDisconnected {};
struct FrameArrived {
  AgentFrame frame;
};
// The answers to BeginSession.
struct SessionBegan {
  NodeReady facts;
};
struct SessionImpossible {
  std::string why;
};
// An order's outcome, for the launcher.
struct OutcomeKnown {
  AgentMessage message;
};
struct AgentStopped {};
using AgentEvent = std::variant<LauncherConnected, LauncherDisconnected, FrameArrived, SessionBegan,
                                SessionImpossible, OutcomeKnown, AgentStopped, TimePassed>;

// --- effects
struct SendFrame {
  AgentFrame frame;
};
struct BeginSession {
  Welcome welcome;
};
// A new launcher goes on with what runs. Answered by SessionBegan.
struct AdoptSession {
  Welcome welcome;
};
struct EndSession {  // Kill what it started, close its doors.
  std::string why;
};
struct CarryOut {
  AgentMessage order;
};
struct SayRefused {
  std::string reason;
};
struct SayIgnored {  // Of an earlier launcher.
  uint64_t launcher = 0;
};
struct SayOrphaned {
  std::string why;
  Duration left{};  // Until everything ends.
};
struct SayResumed {};
using AgentEffect = std::variant<SendFrame, BeginSession, AdoptSession, EndSession, CarryOut,
                                 SayRefused, SayIgnored, SayOrphaned, SayResumed>;

class AgentSession {
 public:
  enum class State { kJoining, kServing, kOrphaned };

  // The hello without its session.
  explicit AgentSession(AgentHello hello) : hello_(std::move(hello)) {}

  void step(const AgentEvent& event, Instant now, std::vector<AgentEffect>& effects);
  Instant next_wakeup() const;
  State state() const { return state_; }

 private:
  using Turn = pdjob::Turn<AgentEffect>;
  void on(const LauncherConnected& event, Turn& turn);
  void on(const LauncherDisconnected& event, Turn& turn);
  void on(const FrameArrived& event, Turn& turn);
  void on(const SessionBegan& event, Turn& turn);
  void on(const SessionImpossible& event, Turn& turn);
  void on(const OutcomeKnown& event, Turn& turn);
  void on(const AgentStopped& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  void begin(const AgentFrame& frame, Turn& turn);
  bool adopts(const Welcome& welcome) const;
  void keep_for_owner(uint64_t session, Turn& turn);
  void lose(const std::string& why, Turn& turn);
  void orphan(const std::string& why, Duration left, Turn& turn);
  void end(const std::string& why, Turn& turn);
  void send(AgentMessage message, Turn& turn);
  void say_hello(Turn& turn);
  void resume(Turn& turn);
  bool holds_session() const { return state_ != State::kJoining; }

  AgentHello hello_;
  State state_ = State::kJoining;
  bool connected_ = false;
  Instant hello_due_{};

  // Of the last session that began. They outlive it, so that an earlier launcher stays refused.
  std::string owner_;
  std::string job_;
  uint64_t launcher_ = 0;
  // Of the session.
  uint64_t session_ = 0;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t sign_ = 0;               // The last that was asked for.
  std::vector<AgentMessage> held_;  // What came of orders while the launcher was lost.
  std::deque<AgentFrame> unsure_;   // Sent, and the launcher has not said that it came.
  bool ready_ = false;              // It began.
  Duration lease_{};
  Duration orphan_timeout_{};
  Instant heard_{};
  Instant beat_due_{};
  Instant orphan_until_{};
  bool warm_ = false;  // An orphan, because its job has ended.
};

inline constexpr Duration kAgentBeat = std::chrono::milliseconds(500);
inline constexpr Duration kHelloRetry = std::chrono::seconds(1);
inline constexpr Duration kRefusedRetry = std::chrono::seconds(3);

}  // namespace pdjob::launcher
