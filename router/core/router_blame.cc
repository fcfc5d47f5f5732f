// Finds requests that kill workers, and keeps suspects apart: router.h has the rules.
#include <algorithm>
#include <utility>

#include "router/core/router.h"

namespace pdjob::router {

bool Router::is_suspect(const Request& request, Instant now) {
  return std::ranges::any_of(request.losses,
                             [now](const Loss& loss) { return loss.killed() || loss.open(now); });
}

// Losses of legs that began before any of them count as one: a request that is hedged may have had
// the same neighbour at two workers.
template <class Counts>
size_t Router::count_losses(const Request& request, const Counts& counts) {
  size_t as_suspect = 0;
  bool before = false;
  for (const Loss& loss : request.losses) {
    as_suspect += counts(loss) && loss.as_suspect ? 1 : 0;
    before = before || (counts(loss) && !loss.as_suspect);
  }
  return as_suspect + (before ? 1 : 0);
}

bool Router::awaits_word(const Request& request, Instant now) {
  const auto open = [now](const Loss& loss) { return loss.open(now); };
  return std::ranges::any_of(request.losses, open) && count_losses(request, [&](const Loss& loss) {
                                                        return loss.killed() || open(loss);
                                                      }) >= limits::kRequestKillsMax;
}

Instant Router::suspect_wakes(const Request& request, Instant now) {
  Instant when = kNever;
  for (const Loss& loss : request.losses) {
    if (loss.open(now)) {
      when = std::min(when, loss.noted + limits::kLossWordWait);
    }
  }
  return request.alone_until > now ? std::min(when, request.alone_until) : when;
}

bool Router::is_guilty(const Request& request) const {
  return count_losses(request, [](const Loss& loss) { return loss.killed(); }) >=
         limits::kRequestKillsMax;
}

// Another request, which may have ended since, was at every worker that this one lost, and may be
// the killer: a hedged request becomes a suspect only when its first worker is lost, and may be at
// a second one already, to which this one was sent meanwhile. Then these losses count as one. From
// now on, both are kept apart.
void Router::excuse_company(Request& request) {
  const auto was_at = [this](RequestId other, WorkerId worker) {
    const auto lost = lost_.find(worker);
    return lost != lost_.end() &&
           std::ranges::find(lost->second.had, other) != lost->second.had.end();
  };
  const auto killed = std::ranges::find_if(request.losses, &Loss::killed);
  const auto first = lost_.find(killed->worker);
  const bool company =
      first != lost_.end() && std::ranges::any_of(first->second.had, [&](RequestId other) {
        return other != request.id && std::ranges::all_of(request.losses, [&](const Loss& loss) {
                 return !loss.killed() || was_at(other, loss.worker);
               });
      });
  for (Loss& loss : request.losses) {
    loss.as_suspect = loss.as_suspect && !(company && loss.killed());
  }
}

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

// Notes that the leg's worker is lost, or seems so. Requires: the leg's trial has not ended.
void Router::note_loss(Request& request, const Leg& leg, Instant now) {
  const auto known = std::ranges::find(request.losses, leg.worker, &Loss::worker);
  const bool counts = known != request.losses.end() && (known->killed() || known->open(now));
  if (!config_.hears_losses || counts) {
    return;
  }
  const auto [lost, is_new] = lost_.try_emplace(leg.worker);
  if (const Worker* worker = table_.find(leg.worker); is_new && worker != nullptr) {
    lost->second.engine_id = worker->entry.engine_id;
  }
  lost->second.had_suspect = lost->second.had_suspect || leg.on_trial;
  if (lost->second.had.size() < limits::kLostWorkerRequestsMax) {
    lost->second.had.push_back(request.id);
  }
  const Loss loss{
      .worker = leg.worker, .noted = now, .on_trial = leg.on_trial, .as_suspect = leg.as_suspect};
  if (known != request.losses.end()) {
    *known = loss;  // Its connection broke before, and the worker continued.
  } else {
    request.losses.push_back(loss);
  }
  if (lost_.size() > limits::kLostWorkersMax) {
    lost_.erase(lost_.begin());
  }
}

// Notes losses for legs that still run, other than crashes. The kernel closes all connections
// before a crash can be reported, so one that is still open had never reached the worker.
void Router::note_losses(Request& request, const std::vector<WorkerId>& gone, Instant now) {
  const auto note = [&](const Leg& leg) {
    const auto lost = lost_.find(leg.worker);
    const bool left = std::ranges::find(gone, leg.worker) != gone.end();
    // A relayed reply may end well even if its worker is silent.
    const bool ends = request.state != State::kRelaying && request.state != State::kAnswered;
    if (!leg.running || lost == lost_.end()) {
      return;
    }
    const net::LossCause cause = lost->second.cause;
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

// Requires: the table lacks the workers that are gone, and lost_ has them.
void Router::take_departures(const WorkersChanged& event, const std::vector<WorkerId>& gone,
                             Turn& turn) {
  for (auto& [id, lost] : lost_) {
    const auto is_it = [&engine = lost.engine_id](const net::WorkerEntry& entry) {
      return entry.engine_id == engine;
    };
    const auto told = std::ranges::find(event.left, lost.engine_id, &net::Departure::engine_id);
    if (table_.find(id) != nullptr) {
      continue;
    }
    if (std::ranges::any_of(event.workers, is_it)) {
      lost.cause = net::LossCause::kOutside;  // It was silent for a while, and is back.
    } else if (told != event.left.end() && lost.cause == net::LossCause::kUnknown) {
      lost.cause = told->cause;
    }
  }
  // Note and settle all losses before judging any request: a suspect on trial clears the others,
  // and requests that were together are no proof against each other.
  for (auto& [id, request] : requests_) {
    note_losses(request, gone, turn.now);
  }
  for (auto& [id, request] : requests_) {
    settle_losses(request, turn.now);
  }
  std::vector<RequestId> guilty;
  for (auto& [id, request] : requests_) {
    if (request.losses.empty()) {
      continue;
    }
    if (!is_suspect(request, turn.now)) {
      end_trial(request.attempt.prefill);
      end_trial(request.attempt.decode);
    }
    if (is_guilty(request)) {
      excuse_company(request);
    }
    if (request.state != State::kAnswered && is_guilty(request)) {
      guilty.push_back(id);
    }
  }
  for (const RequestId id : guilty) {
    convict_killer(requests_.at(id), turn);
  }
}

// Takes the causes known by now for the workers that this request lost. Ignores a report that comes
// too late: a worker may continue after a connection broke, and be lost for another reason.
void Router::settle_losses(Request& request, Instant now) {
  bool killed = false;
  std::erase_if(request.losses, [&](Loss& loss) {
    if (loss.open(now)) {
      const auto lost = lost_.find(loss.worker);
      if (lost == lost_.end() || lost->second.cause == net::LossCause::kUnknown) {
        return false;
      }
      loss.cause = lost->second.cause;
      // The request had passed its trial, and another suspect had not.
      const bool passed = loss.as_suspect && !loss.on_trial;
      const bool cleared = killed && passed && lost->second.had_suspect;
      if (loss.cause == net::LossCause::kOutside || cleared) {
        std::erase(lost->second.had, request.id);
        return true;
      }
    }
    killed = killed || loss.killed();
    return false;
  });
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
