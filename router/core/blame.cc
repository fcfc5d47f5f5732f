#include "router/core/blame.h"

#include <algorithm>

namespace pdjob::router {

bool Losses::is_suspect(Instant now) const {
  return std::ranges::any_of(losses_,
                             [now](const Loss& loss) { return loss.killed() || loss.open(now); });
}

bool Losses::is_guilty() const {
  return count([](const Loss& loss) { return loss.killed(); }) >= limits::kRequestKillsMax;
}

bool Losses::awaits_word(Instant now) const {
  const auto open = [now](const Loss& loss) { return loss.open(now); };
  return std::ranges::any_of(losses_, open) && count([&](const Loss& loss) {
                                                 return loss.killed() || open(loss);
                                               }) >= limits::kRequestKillsMax;
}

Instant Losses::wakes(Instant now) const {
  Instant when = kNever;
  for (const Loss& loss : losses_) {
    if (loss.open(now)) {
      when = std::min(when, loss.noted + limits::kLossWordWait);
    }
  }
  return alone_until_ > now ? std::min(when, alone_until_) : when;
}

void Losses::begin_wait(Instant now) {
  if (alone_until_ == Instant{}) {
    alone_until_ = now + limits::kSuspectWaitMax;
  }
}

// Losses of legs that began before any of them count as one: a request that is hedged may have had
// the same neighbour at two workers.
template <class Counts>
size_t Losses::count(const Counts& counts) const {
  size_t as_suspect = 0;
  bool before = false;
  for (const Loss& loss : losses_) {
    as_suspect += counts(loss) && loss.as_suspect ? 1 : 0;
    before = before || (counts(loss) && !loss.as_suspect);
  }
  return as_suspect + (before ? 1 : 0);
}

// The table drops the engine ids of workers that are gone.
void Blame::expect(const WorkerTable& table) {
  for (const auto& [id, worker] : table.all()) {
    lost_.try_emplace(id, LostWorker{.engine_id = worker.entry.engine_id});
  }
}

void Blame::take(const WorkersChanged& event, const WorkerTable& table) {
  std::erase_if(lost_, [&table](const auto& lost) {
    return table.find(lost.first) != nullptr && !lost.second.had_suspect;
  });
  keep_newest();
  for (auto& [id, lost] : lost_) {
    const auto told = std::ranges::find(event.left, lost.engine_id, &net::Departure::engine_id);
    if (table.find(id) != nullptr) {
      continue;
    }
    if (std::ranges::find(event.workers, lost.engine_id, &net::WorkerEntry::engine_id) !=
        event.workers.end()) {
      lost.cause = net::LossCause::kOutside;  // It was silent for a while, and is back.
    } else if (told != event.left.end() && lost.cause == net::LossCause::kUnknown) {
      lost.cause = told->cause;
    }
  }
}

std::optional<net::LossCause> Blame::cause_of(WorkerId worker) const {
  const auto lost = lost_.find(worker);
  return lost == lost_.end() ? std::nullopt : std::optional(lost->second.cause);
}

void Blame::note(RequestId request, Losses& losses, const Stay& stay, const WorkerTable& table,
                 Instant now) {
  const auto known = std::ranges::find(losses.losses_, stay.worker, &Losses::Loss::worker);
  const bool is_known = known != losses.losses_.end();
  if (is_known && (known->killed() || known->open(now))) {
    return;
  }
  const auto [row, is_new] = lost_.try_emplace(stay.worker);
  LostWorker& lost = row->second;
  if (const Worker* worker = table.find(stay.worker); is_new && worker != nullptr) {
    lost.engine_id = worker->entry.engine_id;
  }
  lost.had_suspect = lost.had_suspect || stay.on_trial;
  if (lost.had.size() < limits::kLostWorkerRequestsMax) {
    lost.had.push_back(request);
  }
  // A known one: its connection broke before, and the worker continued.
  (is_known ? *known : losses.losses_.emplace_back()) = {.worker = stay.worker,
                                                         .noted = now,
                                                         .on_trial = stay.on_trial,
                                                         .as_suspect = stay.as_suspect};
  keep_newest();
}

void Blame::settle(RequestId request, Losses& losses, Instant now) {
  bool killed = false;
  std::erase_if(losses.losses_, [&](Losses::Loss& loss) {
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
        std::erase(lost->second.had, request);
        return true;
      }
    }
    killed = killed || loss.killed();
    return false;
  });
}

void Blame::excuse_company(RequestId request, Losses& losses) const {
  const auto had = [this](WorkerId worker, RequestId other) {
    const auto lost = lost_.find(worker);
    return lost != lost_.end() &&
           std::ranges::find(lost->second.had, other) != lost->second.had.end();
  };
  const auto first =
      lost_.find(std::ranges::find_if(losses.losses_, &Losses::Loss::killed)->worker);
  const bool company =
      first != lost_.end() && std::ranges::any_of(first->second.had, [&](RequestId other) {
        return other != request &&
               std::ranges::all_of(losses.losses_, [&](const Losses::Loss& loss) {
                 return !loss.killed() || had(loss.worker, other);
               });
      });
  for (Losses::Loss& loss : losses.losses_) {
    loss.as_suspect = loss.as_suspect && !(company && loss.killed());
  }
}

void Blame::keep_newest() {
  while (lost_.size() > limits::kLostWorkersMax) {
    lost_.erase(lost_.begin());
  }
}

}  // namespace pdjob::router
