// Keeps suspects apart, and ends requests that kill workers: blame.h has the rules.
#include <algorithm>
#include <utility>

#include "router/core/router.h"

namespace pdjob::router {

void Router::begin_trial(Leg& leg) {
  leg.on_trial = leg.as_suspect = true;
  table_.begin_trial(leg.worker);
}

void Router::end_trial(Leg& leg) {
  if (std::exchange(leg.on_trial, false)) {
    table_.end_trial(leg.worker);
    room_made_ = true;
  }
}

void Router::note_loss(Request& request, const Leg& leg, Instant now) {
  if (config_.hears_losses) {
    blame_.note(request.id, request.losses,
                {.worker = leg.worker, .on_trial = leg.on_trial, .as_suspect = leg.as_suspect},
                table_, now);
  }
}

// Notes losses for legs that still run, other than crashes. The kernel closes all connections
// before a crash can be reported, so one that is still open had never reached the worker.
void Router::note_losses(Request& request, const std::vector<WorkerId>& gone, Instant now) {
  const auto note = [&](const Leg& leg) {
    const auto cause = leg.running ? blame_.cause_of(leg.worker) : std::nullopt;
    const bool left = std::ranges::find(gone, leg.worker) != gone.end();
    // A relayed reply may end well even if its worker is silent.
    const bool ends = request.state != State::kRelaying && request.state != State::kAnswered;
    if (cause == net::LossCause::kHang || (cause == net::LossCause::kUnknown && left && ends)) {
      note_loss(request, leg, now);
    }
  };
  note(request.attempt.prefill);
  note(request.attempt.decode);
  if (request.rival) {
    note(request.rival->prefill);
    note(request.rival->decode);
  }
}

// Requires: the table lacks the workers that are gone.
void Router::take_departures(const WorkersChanged& event, const std::vector<WorkerId>& gone,
                             Turn& turn) {
  blame_.take(event, table_);
  // Note and settle all losses before judging any request: a suspect on trial clears the others,
  // and requests that were together are no proof against each other.
  for (auto& [id, request] : requests_) {
    note_losses(request, gone, turn.now);
  }
  for (auto& [id, request] : requests_) {
    blame_.settle(id, request.losses, turn.now);
  }
  std::vector<RequestId> guilty;
  for (auto& [id, request] : requests_) {
    if (request.losses.empty()) {
      continue;
    }
    if (!request.losses.is_suspect(turn.now)) {
      end_trial(request.attempt.prefill);
      end_trial(request.attempt.decode);
    }
    if (request.losses.is_guilty()) {
      blame_.excuse_company(id, request.losses);
    }
    if (request.state != State::kAnswered && request.losses.is_guilty()) {
      guilty.push_back(id);
    }
  }
  for (const RequestId id : guilty) {
    convict_killer(requests_.at(id), turn);
  }
}

void Router::convict_killer(Request& request, Turn& turn) {
  turn.effects.emplace_back(Blamed{request.id, request.losses.size()});
  if (request.begun) {
    abort(request, turn);
    return;
  }
  cancel_legs(request, turn);
  turn.effects.emplace_back(Refuse{
      request.id, openai::invalid_request("Several workers broke down while they computed this "
                                          "request. It is not given to another one.",
                                          "", "request_kills_workers", 422)});
  erase(request);
}

}  // namespace pdjob::router
