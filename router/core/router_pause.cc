// Pauses: what happens to requests while admission is closed.
#include <algorithm>
#include <vector>

#include "router/core/router.h"

namespace pdjob::router {

size_t Router::requests_running() const {
  return static_cast<size_t>(std::ranges::count_if(requests_, [](const auto& each) {
    return each.second.state != State::kQueued && !each.second.facts.probes;
  }));
}

Router::Background Router::background() const {
  Background found;
  for (const auto& [id, request] : requests_) {
    found.alive += request.facts.background ? 1 : 0;
    found.queued += request.facts.background && request.state == State::kQueued ? 1 : 0;
  }
  return found;
}

void Router::on(const AdmissionSet& event, Turn& turn) {
  const bool was_closed = closed_;
  closed_ = event.closed;
  pause_mode_ = event.mode;
  if (!closed_) {
    if (was_closed) {
      open_admission(turn);
    }
    return;
  }
  quiet_told_ = false;
  if (event.mode == net::PauseMode::kAbort) {
    turn.effects.emplace_back(AbortRunning{});
  }
  if (event.mode != net::PauseMode::kWait) {
    std::vector<RequestId> running;
    for (const auto& [id, request] : requests_) {
      if (request.state != State::kQueued && !request.facts.probes) {
        running.push_back(id);
      }
    }
    for (const RequestId id : running) {
      retract(requests_.at(id), turn);
    }
  }
}

// The time in the queue begins now.
void Router::open_admission(Turn& turn) {
  for (auto& [id, request] : requests_) {
    if (request.state == State::kQueued) {
      request.queue_deadline = turn.now + config_.queue_timeout;
      request.failed.clear();
      set_wake(request, std::min(request.queue_deadline, request.deadline));
    }
  }
  place_queued(SIZE_MAX, turn);
}

// With kAbort, only the rest of a request that is answered already.
void Router::retract(Request& request, Turn& turn) {
  if (request.state == State::kAnswered) {
    cancel_legs(request, turn);
    erase(request);
  } else if (pause_mode_ == net::PauseMode::kAbort) {
    return;
  } else if (request.state == State::kRelaying) {
    turn.effects.emplace_back(TakeOff{{request.id, request.attempt.number, request.relayed}});
  } else {
    cancel_legs(request, turn);
    request.tries -= request.tries > 0 ? 1 : 0;
    enqueue(request, turn);
  }
}

void Router::on(const LegTakenOff& event, Turn& turn) {
  const auto [request, attempt] = find_running(event.leg);
  if (request == nullptr || request->state != State::kRelaying ||
      event.leg.stage != request->relayed) {
    return;
  }
  end_leg(*request, attempt->leg(event.leg.stage));
  drop_prefill(*request, *attempt, turn);
  request->failed.clear();
  request->prefill_overloaded = false;
  request->last_failure.clear();
  place(*request, turn);
}

void Router::look_if_quiet(Turn& turn) {
  if (closed_ && !quiet_told_ && requests_running() == 0) {
    quiet_told_ = true;
    turn.effects.emplace_back(Quiet{});
  }
}

}  // namespace pdjob::router
