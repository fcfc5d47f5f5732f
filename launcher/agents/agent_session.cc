#include "launcher/agents/agent_session.h"

#include <algorithm>
#include <utility>

namespace pdjob::launcher {

namespace {

// At most a week, whatever a launcher says.
Duration duration_of(uint64_t milliseconds) {
  constexpr uint64_t kMost = std::chrono::milliseconds(std::chrono::hours(24 * 7)).count();
  return std::chrono::milliseconds(std::min(milliseconds, kMost));
}

}  // namespace

void AgentSession::step(const AgentEvent& event, Instant now, std::vector<AgentEffect>& effects) {
  Turn turn{now, effects};
  std::visit([&](const auto& body) { on(body, turn); }, event);
}

Instant AgentSession::next_wakeup() const {
  const Instant hello = connected_ ? hello_due_ : kNever;
  switch (state_) {
    case State::kJoining:
      return hello;
    case State::kServing:
      return std::min(beat_due_, heard_ + lease_);
    case State::kOrphaned:
      return std::min(hello, orphan_until_);
  }
  return kNever;
}

void AgentSession::on(const LauncherConnected& /*event*/, Turn& turn) {
  connected_ = true;
  if (state_ != State::kServing) {
    say_hello(turn);
  }
}

void AgentSession::on(const LauncherDisconnected& /*event*/, Turn& turn) {
  connected_ = false;
  if (state_ == State::kServing) {
    lose("the connection to the launcher ended", turn);
  }
}

void AgentSession::on(const FrameArrived& event, Turn& turn) {
  const AgentFrame& frame = event.frame;
  if (std::holds_alternative<Welcome>(frame.message)) {
    begin(frame, turn);
    return;
  }
  if (const auto* refused = std::get_if<Refused>(&frame.message)) {
    if (state_ != State::kServing) {
      hello_due_ = turn.now + kRefusedRetry;
      turn.effects.push_back(SayRefused{refused->reason});
    }
    return;
  }
  if (!holds_session() || frame.session != session_) {
    return;
  }
  if (const auto* goodbye = std::get_if<Goodbye>(&frame.message)) {
    warm_ = goodbye->keep_ms > 0 && ready_ && !owner_.empty();
    if (warm_) {
      orphan("the job has ended", duration_of(goodbye->keep_ms), turn);
    } else {
      end("the launcher said goodbye", turn);
    }
    say_hello(turn);
    return;
  }
  if (const auto* asked = std::get_if<SignAsked>(&frame.message)) {
    sign_ = asked->sign;
    say_hello(turn);
    return;
  }
  if (frame.number != received_ + 1) {
    end("messages of the launcher were lost", turn);
    say_hello(turn);
    return;
  }
  ++received_;
  heard_ = turn.now;
  if (const auto* beat = std::get_if<Beat>(&frame.message)) {
    std::erase_if(unsure_, [&](const AgentFrame& sent) { return sent.number <= beat->received; });
  }
  if (state_ == State::kOrphaned) {
    resume(turn);
  }
  if (!std::holds_alternative<Beat>(frame.message)) {
    turn.effects.push_back(CarryOut{frame.message});
  }
}

void AgentSession::resume(Turn& turn) {
  state_ = State::kServing;
  beat_due_ = turn.now;
  turn.effects.push_back(SayResumed{});
  for (const AgentFrame& again : unsure_) {
    turn.effects.push_back(SendFrame{again});
  }
  for (AgentMessage& outcome : std::exchange(held_, {})) {
    send(std::move(outcome), turn);
  }
}

bool AgentSession::adopts(const Welcome& welcome) const {
  return holds_session() && ready_ && !owner_.empty() && welcome.owner == owner_ &&
         welcome.launcher > launcher_;
}

// Only the first message of a session is a Welcome. A late copy of it changes nothing.
void AgentSession::begin(const AgentFrame& frame, Turn& turn) {
  const Welcome& welcome = std::get<Welcome>(frame.message);
  if (frame.number != 1 || frame.session == 0 || frame.session == session_) {
    return;
  }
  if (!owner_.empty() && welcome.owner == owner_ && welcome.launcher < launcher_) {
    turn.effects.push_back(SayIgnored{welcome.launcher});
    return;
  }
  const bool adopts_it = adopts(welcome);
  const bool looks = welcome.launcher == 0;
  const bool stranger = looks || (welcome.job != job_ && !warm_);
  if (state_ == State::kOrphaned && ready_ && !adopts_it && stranger) {
    keep_for_owner(frame.session, turn);
    return;
  }
  if (holds_session() && !adopts_it) {
    end("a launcher begins anew", turn);
  }
  state_ = State::kServing;
  session_ = frame.session;
  owner_ = welcome.owner;
  job_ = welcome.job;
  launcher_ = welcome.launcher;
  warm_ = false;
  sent_ = 0;
  received_ = 1;
  sign_ = 0;
  held_.clear();
  unsure_.clear();
  ready_ = false;
  lease_ = std::max<Duration>(duration_of(welcome.lease_ms), 2 * kAgentBeat);
  orphan_timeout_ = duration_of(welcome.orphan_timeout_ms);
  heard_ = turn.now;
  beat_due_ = turn.now + kAgentBeat;
  if (adopts_it) {
    turn.effects.push_back(AdoptSession{welcome});
  } else {
    turn.effects.push_back(BeginSession{welcome});
  }
}

// The processes here may still be adopted. The other job hears why this node does not serve it.
void AgentSession::keep_for_owner(uint64_t session, Turn& turn) {
  const auto left = (orphan_until_ - turn.now) / std::chrono::seconds(1);
  const std::string why = "it keeps the processes of job " + job_ +
                          (warm_ ? ", which has ended, warm" : ", whose launcher is lost,") +
                          " for " + std::to_string(left) + " s more";
  turn.effects.push_back(SendFrame{{session, 1, NodeLeaving{why}}});
  hello_due_ = turn.now + kRefusedRetry;
}

void AgentSession::on(const SessionBegan& event, Turn& turn) {
  if (holds_session() && !ready_) {
    ready_ = true;
    send(event.facts, turn);
  }
}

void AgentSession::on(const SessionImpossible& event, Turn& turn) {
  if (holds_session()) {
    send(NodeLeaving{event.why}, turn);
    end(event.why, turn);
    hello_due_ = turn.now + kRefusedRetry;
  }
}

// A lost launcher hears it when it is back: a message that does not leave would be a gap.
void AgentSession::on(const OutcomeKnown& event, Turn& turn) {
  if (state_ == State::kServing) {
    send(event.message, turn);
  } else if (state_ == State::kOrphaned && held_.size() < kAgentHeldMax) {
    held_.push_back(event.message);
  } else if (state_ == State::kOrphaned) {
    end("too much happened while the launcher was lost", turn);
  }
}

void AgentSession::on(const AgentStopped& /*event*/, Turn& turn) {
  if (holds_session()) {
    send(NodeLeaving{"its agent was stopped"}, turn);
    end("the agent was stopped", turn);
  }
}

void AgentSession::on(const TimePassed& /*event*/, Turn& turn) {
  if (state_ == State::kServing && turn.now >= heard_ + lease_) {
    lose("the launcher was silent", turn);
  }
  if (state_ == State::kOrphaned && turn.now >= orphan_until_) {
    end("no launcher came back", turn);
  }
  if (state_ == State::kServing && turn.now >= beat_due_) {
    beat_due_ = turn.now + kAgentBeat;
    turn.effects.push_back(SendFrame{{session_, sent_, Beat{received_}}});
  }
  if (state_ != State::kServing && connected_ && turn.now >= hello_due_) {
    say_hello(turn);
  }
}

void AgentSession::lose(const std::string& why, Turn& turn) {
  if (orphan_timeout_ == Duration::zero()) {
    end(why, turn);
    return;
  }
  orphan(why, orphan_timeout_, turn);
}

void AgentSession::orphan(const std::string& why, Duration left, Turn& turn) {
  state_ = State::kOrphaned;
  orphan_until_ = turn.now + left;
  turn.effects.push_back(SayOrphaned{why, left});
}

void AgentSession::end(const std::string& why, Turn& turn) {
  state_ = State::kJoining;
  session_ = 0;
  hello_due_ = turn.now;
  turn.effects.push_back(EndSession{why});
}

// A number that is used for a message that does not leave is a gap for the launcher.
void AgentSession::send(AgentMessage message, Turn& turn) {
  AgentFrame frame{session_, ++sent_, std::move(message)};
  if (orphan_timeout_ > Duration::zero() && unsure_.size() < kAgentHeldMax) {
    unsure_.push_back(frame);
  }
  turn.effects.push_back(SendFrame{std::move(frame)});
}

void AgentSession::say_hello(Turn& turn) {
  hello_due_ = turn.now + kHelloRetry;
  AgentHello hello = hello_;
  hello.session = session_;
  hello.sign = sign_;
  turn.effects.push_back(SendFrame{{.message = std::move(hello)}});
}

}  // namespace pdjob::launcher
