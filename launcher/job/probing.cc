#include "launcher/job/probing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "net/control/kv_fingerprint.h"

namespace pdjob::launcher {

Probing::Probing(Duration retry, Duration patience, bool foreign_router, Knows knows)
    : retry_(retry),
      patience_(patience),
      foreign_router_(foreign_router),
      knows_(std::move(knows)) {}

Probing::Kind Probing::kind_of(const Process& process) {
  return process.is_router() ? kRouter : process.role == net::Role::kPrefill ? kPrefill : kDecode;
}

Probing::Group& Probing::group(Kind kind, const std::string& model) {
  return groups_[{kind, kind == kRouter ? "" : model}];
}

Probing::Subject* Probing::find(Incarnation incarnation) {
  const auto found = subjects_.find(incarnation);
  return found == subjects_.end() ? nullptr : &found->second;
}

void Probing::update(const Process& process) {
  const auto before = by_name_.find(process.name);
  if (!process.serving() || process.suspected || process.killed || process.is_batch() ||
      process.is_store()) {
    remove(process);
    return;
  }
  if (before != by_name_.end() && before->second != process.incarnation) {
    drop(before->second);
  }
  by_name_[process.name] = process.incarnation;
  const auto [found, is_new] = subjects_.try_emplace(process.incarnation);
  Subject& subject = found->second;
  const bool proved = process.state == ProcessState::kReady;
  if (is_new) {
    subject.name = process.name;
    subject.incarnation = process.incarnation;
    subject.kind = kind_of(process);
    subject.model = process.model;
    subject.fingerprint = process.entry.fingerprint;
    subject.needs_prefill = process.role == net::Role::kDecode;
    group(subject.kind, subject.model).emplace(subject.incarnation, &subject);
  } else if (subject.proved == proved) {
    return;
  }
  subject.proved = proved;
  const std::pair waits(subject.failures, subject.incarnation);
  proved ? void(unproved_.erase(waits)) : void(unproved_.insert(waits));
  // No router knows a newcomer yet, and a new router knows nobody: routers_learnt() comes.
  changed_ = changed_ || !is_new || proved || foreign_router_;
}

void Probing::remove(const Process& process) {
  if (const auto found = by_name_.find(process.name); found != by_name_.end()) {
    drop(found->second);
    by_name_.erase(found);
  }
}

void Probing::drop(Incarnation incarnation) {
  if (const Subject* subject = find(incarnation)) {
    for (auto& [probe, flight] : in_flight_) {  // It may come back meanwhile.
      if (Incarnation& member = flight.members[subject->kind]; member == incarnation) {
        member = {};
        flight.somebody_left = true;
      }
    }
    group(subject->kind, subject->model).erase(incarnation);
    unproved_.erase({subject->failures, incarnation});
    subjects_.erase(incarnation);
    changed_ = true;
  }
}

std::optional<Probe> Probing::next(Instant now) {
  if (!changed_ && now < due_) {
    return std::nullopt;
  }
  due_ = kNever;
  changed_ = true;  // Until nothing is found.
  if (in_flight_.size() >= kAtOnceMax || !could_pass()) {
    return std::nullopt;  // Looking at each of them would find as little.
  }
  // Those that never failed come first.
  for (const auto& [failures, incarnation] : unproved_) {
    Subject& subject = *find(incarnation);
    if (now < subject.not_before) {
      due_ = std::min(due_, subject.not_before);
    } else if (auto probe = probe_of(subject)) {
      return probe;
    }
  }
  changed_ = false;
  return std::nullopt;
}

bool Probing::could_pass() const {
  const auto any = [this](Kind kind) {
    return std::ranges::any_of(groups_, [kind](const auto& row) {
      return row.first.first == kind && !row.second.empty();
    });
  };
  return (foreign_router_ || any(kRouter)) && any(kDecode);
}

// Probes it with proved ones, if there are any. Otherwise it takes part in one probe at a time.
std::optional<Probe> Probing::probe_of(Subject& subject) {
  for (const bool proved_only : {true, false}) {
    const bool busy = proved_only ? subject.with_proved > 0 : subject.in_flight > 0;
    std::array<Subject*, kKinds> members{};
    if (!busy && choose(subject, members, proved_only)) {
      return send(subject, members);
    }
  }
  return std::nullopt;
}

// Chooses who else takes part. Returns false if somebody is missing.
bool Probing::choose(Subject& subject, std::array<Subject*, kKinds>& members, bool proved_only) {
  if (foreign_router_ && subject.kind == kRouter) {
    members[kRouter] = &subject;
    return std::ranges::any_of(subjects_, [&](const auto& row) {
      return row.second.kind == kDecode && row.second.proved &&
             knows_(subject.name, row.second.name);
    });
  }
  members[subject.kind] = &subject;
  const auto add = [&](Kind kind, const std::string& model) {
    return members[kind] != nullptr ||
           (members[kind] = partner_of(subject, kind, model, proved_only, members)) != nullptr;
  };
  if (subject.kind != kRouter) {
    const bool alone = subject.kind == kDecode && !subject.needs_prefill;
    return (foreign_router_ || add(kRouter, "")) && (alone || add(kPrefill, subject.model)) &&
           add(kDecode, subject.model);
  }
  // A router may be proved with any model.
  for (const auto& [key, decodes] : groups_) {
    if (key.first != kDecode) {
      continue;
    }
    members = {};
    members[kRouter] = &subject;
    if (add(kDecode, key.second) &&
        (!members[kDecode]->needs_prefill || add(kPrefill, key.second))) {
      return true;
    }
  }
  return false;
}

// The least busy proved one, those of pairs with which it has failed last; or else the one after
// the last that was tried.
Probing::Subject* Probing::partner_of(Subject& subject, Kind kind, const std::string& model,
                                      bool proved_only,
                                      const std::array<Subject*, kKinds>& members) {
  const Group& candidates = group(kind, model);
  const auto pairs = [&](const Subject& candidate) {
    return subject.kind != kRouter || kind != kDecode || has_prefill(candidate, proved_only);
  };
  const Subject* const other = members[kind == kPrefill ? kDecode : kPrefill];
  const auto failed = [&](const Subject& candidate) {
    uint32_t times = 0;
    for (const auto& [pair, failures] : subject.failed_with) {
      const auto [its, others] = kind == kPrefill ? pair : std::pair(pair.second, pair.first);
      const bool counts =
          its == candidate.incarnation && (other == nullptr || others == other->incarnation);
      times += counts ? failures : 0;
    }
    return times;
  };
  const auto rank = [&](const Subject& candidate) {
    return std::pair(failed(candidate), candidate.in_flight);
  };
  Subject* best = nullptr;
  for (const auto& [incarnation, candidate] : candidates) {
    if (candidate->proved && fit(*candidate, members) && pairs(*candidate) &&
        (best == nullptr || rank(*candidate) < rank(*best))) {
      best = candidate;
      if (rank(*best) == std::pair(0U, 0U)) {
        break;  // None is better, and a fleet has thousands.
      }
    }
  }
  if (best != nullptr || proved_only) {
    return best;
  }
  const auto usable = [&](const Subject& candidate) {
    return candidate.in_flight < kWithOneMax && fit(candidate, members) && pairs(candidate);
  };
  const auto after = candidates.upper_bound(subject.partner[kind]);
  for (const auto& [from, to] :
       {std::pair(after, candidates.end()), std::pair(candidates.begin(), after)}) {
    const auto found =
        std::find_if(from, to, [&](const auto& candidate) { return usable(*candidate.second); });
    if (found != to) {
      return found->second;
    }
  }
  return nullptr;
}

bool Probing::has_prefill(const Subject& decode, bool proved_only) const {
  const auto found = groups_.find({kPrefill, decode.model});
  return !decode.needs_prefill ||
         (found != groups_.end() && std::ranges::any_of(found->second, [&](const auto& row) {
            return net::same_kv(row.second->fingerprint, decode.fingerprint) &&
                   (row.second->proved || !proved_only);
          }));
}

// The membership and the probe reach a router by different ways: it must know the workers first.
bool Probing::fit(const Subject& candidate, const std::array<Subject*, kKinds>& members) const {
  if (candidate.kind == kRouter) {
    return std::ranges::all_of(members, [&](const Subject* member) {
      return member == nullptr || knows_(candidate.name, member->name);
    });
  }
  // A worker of both roles fetches no KV, so it proves no prefill worker.
  if (candidate.kind == kDecode && !candidate.needs_prefill && members[kPrefill] != nullptr) {
    return false;
  }
  const Subject* const other = members[candidate.kind == kPrefill ? kDecode : kPrefill];
  if (other != nullptr && !net::same_kv(other->fingerprint, candidate.fingerprint)) {
    return false;
  }
  return members[kRouter] == nullptr || knows_(members[kRouter]->name, candidate.name);
}

Probe Probing::send(Subject& subject, const std::array<Subject*, kKinds>& members) {
  const auto [router, prefill, decode] = members;
  InFlight flight{.must_move_kv = prefill != nullptr};
  const auto is_unproved = [](const Subject* one) { return one != nullptr && !one->proved; };
  if (std::ranges::count_if(members, is_unproved) == 1) {
    Subject* const suspect = *std::ranges::find_if(members, is_unproved);
    flight.suspect = suspect->incarnation;
    suspect->with_proved += 1;
  }
  for (Subject* const member : members) {
    if (member != nullptr) {
      flight.members[member->kind] = member->incarnation;
      member->in_flight += 1;
      subject.partner[member->kind] = member->incarnation;
    }
  }
  Probe probe{.probe = ++probes_made_};
  if (router != nullptr) {
    probe.router = router->name;
    flight.path = router->name;
  }
  if (decode == nullptr) {
    // A foreign router, which serves the job's one model.
    const auto worker =
        std::ranges::find_if(subjects_, [](const auto& row) { return row.second.kind == kDecode; });
    probe.model = worker == subjects_.end() ? "" : worker->second.model;
  } else {
    probe.model = decode->model;
    probe.decode = decode->name;
    flight.path = decode->name;
  }
  if (prefill != nullptr) {
    probe.prefill = prefill->name;
    flight.path = prefill->name + " -> " + decode->name;
  }
  in_flight_.emplace(probe.probe, std::move(flight));
  return probe;
}

std::vector<Probing::Subject*> Probing::end(uint64_t probe, const InFlight& ended) {
  std::vector<Subject*> members;
  for (const Incarnation incarnation : ended.members) {
    if (Subject* const member = find(incarnation)) {
      members.push_back(member);
    }
  }
  for (Subject* const member : members) {
    member->in_flight -= 1;
    member->with_proved -= ended.suspect == member->incarnation ? 1 : 0;
  }
  in_flight_.erase(probe);
  changed_ = true;
  return members;
}

std::vector<std::string> Probing::succeeded(const ProbeSucceeded& event, Instant now) {
  const auto found = in_flight_.find(event.probe);
  if (found == in_flight_.end()) {
    return {};
  }
  const InFlight ended = found->second;
  if (ended.must_move_kv && event.kv_bytes == 0) {
    fail(event.probe, ended, "answered, but moved no KV", now);
    return {};
  }
  std::vector<std::string> proved;
  for (Subject* const member : end(event.probe, ended)) {
    member->given_up_with.clear();
    if (!member->proved) {
      proved.push_back(member->name);
    }
  }
  last_error_.clear();
  return proved;
}

std::vector<std::string> Probing::failed(const ProbeFailed& event, Instant now) {
  const auto found = in_flight_.find(event.probe);
  if (found == in_flight_.end()) {
    return {};
  }
  const InFlight ended = found->second;
  return fail(event.probe, ended, event.reason, now);
}

std::vector<std::string> Probing::fail(uint64_t probe, const InFlight& ended,
                                       const std::string& reason, Instant now) {
  last_error_ = ended.path + ": " + reason.substr(0, kErrorBytesMax);
  std::vector<std::string> given_up;
  const std::vector<Subject*> members = end(probe, ended);
  for (Subject* const member : members) {
    if (member->proved) {
      continue;
    }
    member->not_before = now + retry_ * (1U << std::min(member->failures, kDoublingsMax));
    unproved_.erase({member->failures, member->incarnation});
    member->failures += 1;
    unproved_.insert({member->failures, member->incarnation});
    if (!ended.somebody_left && ended.suspect == member->incarnation) {
      member->blamed_since = std::min(member->blamed_since, now);
      member->failed_with[{ended.members[kPrefill], ended.members[kDecode]}] += 1;
      if (now >= member->blamed_since + patience_) {
        given_up.push_back(member->name);
        std::ranges::move(give_up(*member), std::back_inserter(given_up));
      }
    }
  }
  return given_up;
}

std::vector<std::string> Probing::give_up(const Subject& subject) {
  std::vector<std::string> with_it;
  std::set<Incarnation> partners;
  for (const auto& [pair, failures] : subject.failed_with) {
    partners.insert({pair.first, pair.second});
  }
  for (const Incarnation incarnation : partners) {
    Subject* const partner = find(incarnation);
    if (partner == nullptr || !partner->proved) {
      continue;
    }
    partner->given_up_with.insert(subject.incarnation);
    if (partner->given_up_with.size() >= kGivenUpWithMax) {
      with_it.push_back(partner->name);
    }
  }
  return with_it;
}

}  // namespace pdjob::launcher
