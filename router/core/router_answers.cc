// Judges the heads of workers' replies, and decides who is asked next.
#include <algorithm>
#include <utility>

#include "router/core/router.h"
#include "router/core/verdict.h"

namespace pdjob::router {

void Router::on(const LegAnswered& event, Turn& turn) {
  const auto [request, attempt] = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  Leg& leg = attempt->leg(stage);
  const WorkerId worker = leg.worker;
  end_prompt(leg);
  request->queue_deadline = {};
  const Verdict verdict = verdict_on(
      {.status = event.status, .retry_after = event.retry_after, .fetches = leg.fetches});
  if (verdict != Verdict::kGood) {
    leg.begun = {};  // The time of a refusal says nothing about the pace.
  } else if (stage == Stage::kDecode && leg.as == stage && !request->facts.background) {
    leg.begun = turn.now;
  }
  judge(*request, worker, event, verdict, turn);
  const WorkerId prefill = attempt->prefill.worker;
  if (event.kv_suspect && stage == Stage::kDecode && prefill != WorkerId{}) {
    suspect(prefill, worker, PairFault::kDamaged, turn);
  }
  if (request->state == State::kRelaying || request->state == State::kAnswered) {
    return;  // Another leg already serves the client.
  }
  const bool refuses = verdict == Verdict::kClientError || verdict == Verdict::kNotServed;
  if (verdict == Verdict::kGood && stage == Stage::kDecode) {
    convict(*request, *attempt, turn);
    if (event.aborted) {
      drop_prefill(*request, *attempt, turn);
    }
    relay(*request, *attempt, stage, turn);
  } else if (refuses && leg.as != stage && request->facts.route.empty()) {
    serve_by_pair(*request, turn);
  } else if (verdict == Verdict::kClientError) {
    relay_refusal(*request, *attempt, stage, turn);
  } else if (verdict != Verdict::kGood) {
    answer_badly(*request, *attempt, event, verdict, turn);
  }
}

// Notes the answer in the worker's favour or against it. Whether a bad one is the request's own
// fault shows when another worker answers the same request well, or when the worker does nothing
// else.
void Router::judge(Request& request, WorkerId worker, const LegAnswered& answer, Verdict verdict,
                   Turn& turn) {
  bool avoided = false;
  switch (verdict) {
    case Verdict::kGood:
    case Verdict::kClientError:
      room_made_ = table_.note_good(worker) || room_made_;
      return;
    case Verdict::kOverloaded:
      if (request.facts.background) {
        return;  // Others may have room there.
      }
      room_made_ = table_.note_overloaded(worker, turn.now) || room_made_;
      return;
    case Verdict::kHandOverFailed:
      return;  // answer_badly() accuses.
    case Verdict::kMisconfigured:
      if (answer.clients_key) {
        request.accused.push_back({worker, answer.status});
        avoided = table_.note_doubt(worker, turn.now, answer.status);
      } else {
        avoided = table_.note_failed(worker, turn.now, answer.status);
      }
      break;
    case Verdict::kFailed:
      request.accused.push_back({worker, answer.status});
      avoided = table_.note_doubt(worker, turn.now, answer.status);
      break;
    case Verdict::kNotServed:
      avoided = !may_lack(request, worker) && table_.note_doubt(worker, turn.now, answer.status);
      break;
  }
  if (avoided) {
    turn.effects.emplace_back(WorkerAvoided{worker, answer.status});
  }
}

// A make serves a route with some models only, and somebody may have unloaded an adapter.
bool Router::may_lack(const Request& request, WorkerId worker) const {
  const Worker* const found = table_.find(worker);
  return !request.facts.route.empty() ||
         (found != nullptr && found->has_adapter(request.facts.model));
}

void Router::suspect(WorkerId prefill, WorkerId decode, PairFault fault, Turn& turn) {
  const bool known = suspicions_.avoided(prefill, decode, turn.now);
  suspicions_.note(prefill, decode, fault, turn.now);
  if (fault == PairFault::kDamaged || (!known && suspicions_.avoided(prefill, decode, turn.now))) {
    turn.effects.emplace_back(PairSuspected{prefill, decode, fault});
  }
}

// The reply is whole. The head of a stream says nothing yet of the KV.
void Router::judge_pairs(Request& request, const Attempt& attempt, Turn& turn) {
  if (!suspicions_.empty()) {
    suspicions_.note_good(attempt.prefill.worker, attempt.decode.worker);
  }
  for (const auto& [prefill, decode] : std::exchange(request.accused_pairs, {})) {
    const bool there = table_.find(prefill) != nullptr && table_.find(decode) != nullptr;
    if (there && !(attempt.has(prefill) && attempt.has(decode))) {
      suspect(prefill, decode, PairFault::kFailed, turn);
    }
  }
}

// Another pair answered the request well, so the accused workers are at fault.
void Router::convict(Request& request, const Attempt& attempt, Turn& turn) {
  for (const auto& [worker, status] : std::exchange(request.accused, {})) {
    if (!attempt.has(worker) && table_.note_failed(worker, turn.now, status)) {
      turn.effects.emplace_back(WorkerAvoided{worker, status});
    }
  }
}

void Router::relay(Request& request, const Attempt& attempt, Stage stage, Turn& turn) {
  keep_only(request, attempt, turn);
  const Leg& leg = request.attempt.leg(stage);
  const bool on_trial = leg.on_trial;
  set_wake(request, on_trial ? std::min(request.deadline, turn.now + limits::kSuspectTrial)
                             : request.deadline);
  // The decode leg answers well, so the prefill leg beside it has moved its KV and will end soon.
  request.attempt.offered = false;
  // If the client named no model, the stream continues with this worker's model.
  const Worker* worker = table_.find(leg.worker);
  if (request.facts.model.empty() && worker != nullptr) {
    request.facts.model = worker->entry.model;
  }
  request.fingerprint = request.attempt.fingerprint;
  request.state = State::kRelaying;
  request.relayed = stage;
  request.begun = true;
  request.tries = 0;
  turn.effects.emplace_back(Relay{{request.id, request.attempt.number, stage}});
}

// A prefill worker refused a whole request. It may be too small for it: a decode worker decides.
void Router::serve_by_pair(Request& request, Turn& turn) {
  cancel_legs(request, turn);
  request.wants_pair = true;
  request.tries -= 1;
  place(request, turn);
}

// Sends this leg's bad reply to the client, but never into the middle of a stream.
void Router::relay_refusal(Request& request, Attempt& attempt, Stage stage, Turn& turn) {
  if (request.begun) {
    abort(request, turn);
    return;
  }
  if (stage == Stage::kPrefill) {
    cancel_leg(request, attempt, Stage::kDecode, turn);
  } else {
    drop_prefill(request, attempt, turn);
  }
  relay(request, attempt, stage, turn);
}

// A decode worker cannot always tell why a hand-over failed, so its prefill worker is avoided, too.
// A decode worker that fails with a second prefill worker is to blame alone.
void Router::avoid_for_request(Request& request, Attempt& attempt, const LegAnswered& answer,
                               Verdict verdict) {
  const WorkerId worker = attempt.leg(answer.leg.stage).worker;
  const WorkerId prefill = attempt.prefill.worker;
  if (is_ambiguous(attempt, answer.leg.stage, verdict)) {
    request.failed.push_back(prefill);
    request.accused_pairs.emplace_back(prefill, worker);
  }
  if (verdict == Verdict::kHandOverFailed) {
    const auto was_here = [worker](const Accused& one) { return one.worker == worker; };
    if (std::ranges::none_of(request.accused, was_here)) {
      request.accused.push_back({prefill, answer.status});
      request.accused.push_back({worker, answer.status});
      return;
    }
    for (const Accused& one : request.accused) {
      std::erase(request.failed, one.worker);
    }
    std::erase(request.failed, prefill);
    request.accused = {{worker, answer.status}};
  }
  request.failed.push_back(worker);
}

bool Router::is_ambiguous(const Attempt& attempt, Stage stage, Verdict verdict) {
  return stage == Stage::kDecode && attempt.prefill.worker != WorkerId{} &&
         (verdict == Verdict::kHandOverFailed || verdict == Verdict::kFailed);
}

// The worker refused or failed with an HTTP answer. Tries another pair, now or when there is one.
// After the last attempt, the client gets this answer. If no other worker is left, it gets it at
// once where waiting would not help: when all are overloaded, because the answer's Retry-After says
// more, and when none serves this.
void Router::answer_badly(Request& request, Attempt& attempt, const LegAnswered& answer,
                          Verdict verdict, Turn& turn) {
  const Stage stage = answer.leg.stage;
  const WorkerId worker = attempt.leg(stage).worker;
  const bool ambiguous = is_ambiguous(attempt, stage, verdict);
  avoid_for_request(request, attempt, answer, verdict);
  if (verdict == Verdict::kOverloaded && stage == Stage::kPrefill) {
    request.prefill_overloaded = true;
  }
  // If its prefill worker is dying, that connection breaks in a moment, and makes it a suspect.
  // Until then another worker is not risked. A hedged request is at another one already: this loss
  // is noted now, because its rival ends the leg that would break.
  const bool may_be_dying =
      verdict == Verdict::kHandOverFailed && config_.hears_losses && attempt.prefill.running;
  if (may_be_dying && request.rival) {
    note_loss(request, attempt.prefill, turn.now);
  } else if (may_be_dying && may_try_again(request) && retries_.left()) {
    cancel_leg(request, attempt, Stage::kDecode, turn);
    request.last_failure = answer_text(answer.status);
    request.hand_over_failed = true;
    set_wake(request, std::min(request.deadline, turn.now + limits::kBrokenLegWait));
    return;
  }
  if (verdict != Verdict::kOverloaded) {
    table_.forget_address(attempt.prefill.worker);
  }
  if (leave_to_rival(request, attempt, turn)) {
    return;
  }
  const bool free = is_free_to_retry(verdict);
  const bool in_budget = free || retries_.left();
  if (may_try_again(request) && !in_budget) {
    turn.effects.emplace_back(OutOfRetries{request.id});
  }
  const bool may_retry = may_try_again(request) && in_budget;
  std::optional<ChosenPair> choice;
  if (may_retry) {
    choice = choose(request, turn.now);
    if (!choice && ambiguous) {
      std::erase(request.failed,
                 worker);  // It may succeed with another prefill worker, or none.
      choice = choose(request, turn.now);
    }
  }
  if (!may_retry || (!choice && (verdict == Verdict::kOverloaded || free))) {
    end_badly(request, attempt, answer, verdict, turn);
    return;
  }
  if (!free) {
    retries_.spend();
  }
  request.last_failure = answer_text(answer.status);
  cancel_legs(request, turn);
  const RetryReason reason =
      verdict == Verdict::kOverloaded ? RetryReason::kOverloaded : RetryReason::kFailed;
  turn.effects.emplace_back(Retried{request.id, reason, worker});
  if (choice) {
    send(request, *choice, turn);
  } else {
    enqueue(request, turn);
  }
}

// The client gets the worker's answer, unless it would be told of a fault that is the operator's.
void Router::end_badly(Request& request, Attempt& attempt, const LegAnswered& answer,
                       Verdict verdict, Turn& turn) {
  const bool of_client = answer.clients_key && (answer.status == 401 || answer.status == 403);
  if (verdict == Verdict::kMisconfigured && !of_client) {
    refuse(request,
           {ErrorCode::kUnavailable, "no worker could serve the request; the last one failed: " +
                                         answer_text(answer.status)},
           turn);
  } else {
    relay_refusal(request, attempt, answer.leg.stage, turn);
  }
}

}  // namespace pdjob::router
