// Starts, hedges and ends the legs of a request. router_answers.cc judges the answers.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/core/router.h"

namespace pdjob::router {

void Router::send(Request& request, const ChosenPair& choice, Turn& turn) {
  queue_.remove(request.facts.model, request.queue_place);
  queue_.served(request.queue_place);
  request.attempt = {.number = ++request.attempts_made,
                     .decode = {.worker = choice.decode.worker,
                                .cached_tokens = choice.decode.cached_tokens,
                                .as = choice.by_prefill() ? Stage::kPrefill : Stage::kDecode},
                     .fingerprint = table_.find(choice.decode.worker)->entry.fingerprint};
  request.tries += 1;
  request.losses.end_wait();
  if (request.losses.is_suspect(turn.now)) {
    begin_trial(request.attempt.decode);  // With two hops, long before its leg.
  }
  set_wake(request, request.deadline);
  if (choice.degraded) {
    turn.effects.emplace_back(Degraded{request.id});
  }
  if (choice.bypass) {
    turn.effects.emplace_back(Bypassed{request.id, *choice.bypass});
  }
  if (!choice.prefill) {
    request.state = State::kDecoding;
    start_leg(request, Stage::kDecode,
              {.worker = request.attempt.decode.worker, .kv = KvPart::kNone}, turn);
    return;
  }
  const Worker& prefill = *table_.find(choice.prefill->worker);
  const TransferId transfer{id_bits_(), id_bits_()};
  request.attempt.prefill = {
      .worker = prefill.id, .cached_tokens = choice.prefill->cached_tokens, .as = Stage::kPrefill};
  request.attempt.transfer = transfer;
  request.attempt.learnt_address = prefill.learnt_address;
  if (!prefill.concurrent()) {
    request.state = State::kPrefilling;
    request.attempt.decode.promised = true;
    table_.promise(request.attempt.decode.worker);
    start_leg(request, Stage::kPrefill,
              {.worker = prefill.id, .kv = KvPart::kOfferUnnamed, .transfer = transfer}, turn);
    return;
  }
  request.state = State::kConcurrent;
  request.attempt.offered = true;
  start_leg(request, Stage::kPrefill,
            {.worker = prefill.id, .kv = KvPart::kOffer, .transfer = transfer}, turn);
  start_leg(request, Stage::kDecode,
            {.worker = request.attempt.decode.worker,
             .kv = KvPart::kFetch,
             .peer = prefill.id,
             .transfer = transfer},
            turn);
  if (const auto limit = slow_after(request)) {
    set_wake(request, std::min(request.deadline, turn.now + *limit));
  }
}

void Router::send_second_hop(Request& request, bool kv_params, Turn& turn) {
  if (!kv_params && config_.fallback == Fallback::kRefuse) {
    request.failed.push_back(request.attempt.prefill.worker);
    retry(request, RetryReason::kFailed, request.attempt.prefill.worker, "its reply names no KV",
          turn);
    return;
  }
  if (!kv_params) {
    turn.effects.emplace_back(Degraded{.id = request.id, .hand_over_failed = true});
  }
  set_wake(request, request.deadline);
  request.state = State::kDecoding;
  start_leg(request, Stage::kDecode,
            {.worker = request.attempt.decode.worker,
             .kv = kv_params ? KvPart::kFetchReturned : KvPart::kNone,
             .peer = kv_params ? request.attempt.prefill.worker : WorkerId{},
             .transfer = request.attempt.transfer},
            turn);
}

void Router::start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn) {
  Leg& leg = request.attempt.leg(stage);
  PDJOB_CHECK(!leg.running && leg.worker == effect.worker, request.id);
  leg.running = true;
  leg.fetches = effect.kv == KvPart::kFetch || effect.kv == KvPart::kFetchReturned;
  keep_promise(leg);
  // The background's pace is not its worker's.
  const bool paces = stage == Stage::kPrefill && !request.facts.background;
  leg.begun = paces ? turn.now : Instant{};
  leg.tokens = request.facts.tokens(stage) - leg.cached_tokens;
  if (!leg.on_trial && request.losses.is_suspect(turn.now)) {
    begin_trial(leg);
  }
  table_.begin(leg.worker, leg.tokens, turn.now, request.facts.background);
  if (stage == Stage::kDecode && effect.kv == KvPart::kNone && !request.facts.background) {
    leg.prompt =
        request.facts.prompt_tokens - std::min(request.facts.prompt_tokens, leg.cached_tokens);
    table_.begin_prompt(leg.worker, leg.prompt);
  }
  if (config_.measured_load) {
    leg.work =
        stage == Stage::kPrefill ? table_.find(leg.worker)->load() : request.facts.output_tokens;
  }
  policy_of(leg.as).note_sent(request.facts.prompt(), leg.worker);
  if (const WorkerId own = table_.find(leg.worker)->store; stores_.several() && own.value != 0) {
    if (!leg.fetches) {
      effect.elsewhere = stores_.more(request.facts.blocks, own);
    }
    stores_.note_sent(request.facts.blocks, own);
  }
  effect.leg = {request.id, request.attempt.number, stage};
  effect.resumes = request.begun;
  turn.effects.emplace_back(effect);
  if (policies_.kv && policies_.kv->asks(request.facts.blocks, leg.worker)) {
    turn.effects.emplace_back(LearnTokens{request.id, leg.worker, request.facts.blocks});
  }
}

void Router::end_leg(const Request& request, Leg& leg) {
  PDJOB_CHECK(leg.running, request.id);
  leg.running = false;
  end_trial(leg);
  end_prompt(leg);
  table_.end(leg.worker, leg.tokens, request.facts.background);
  policy_of(leg.as).note_ended(request.facts.prompt(), leg.worker);
  room_made_ = true;
}

// It is computed, or given up.
void Router::end_prompt(Leg& leg) { table_.end_prompt(leg.worker, std::exchange(leg.prompt, 0)); }

void Router::keep_promise(Leg& leg) {
  if (std::exchange(leg.promised, false)) {
    table_.keep_promise(leg.worker);
    room_made_ = true;
  }
}

void Router::cancel_leg(const Request& request, Attempt& attempt, Stage stage, Turn& turn) {
  Leg& leg = attempt.leg(stage);
  if (leg.running) {
    end_leg(request, leg);
    turn.effects.emplace_back(CancelLeg{{request.id, attempt.number, stage}});
  }
  keep_promise(leg);
  end_trial(leg);
}

void Router::cancel_legs(Request& request, Turn& turn) {
  request.hand_over_failed = false;
  keep_only(request, request.attempt, turn);
  drop_prefill(request, request.attempt, turn);
  cancel_leg(request, request.attempt, Stage::kDecode, turn);
}

// This attempt's KV will not be fetched. The worker is told even if its leg is cancelled: its reply
// may be under way already, and its rows would then stay until their lease expires.
void Router::drop_prefill(const Request& request, Attempt& attempt, Turn& turn) {
  cancel_leg(request, attempt, Stage::kPrefill, turn);
  const bool offered = std::exchange(attempt.offered, false);
  if (offered && table_.find(attempt.prefill.worker) != nullptr) {
    turn.effects.emplace_back(ReleaseOffer{attempt.prefill.worker, attempt.transfer});
  }
}

// --- a second attempt beside a slow one

PrefillPace& Router::pace_of(WorkerId prefill) {
  const Worker* worker = table_.find(prefill);
  return prefill_paces_
      .try_emplace(worker == nullptr ? "" : worker->entry.model, config_.hedge_quantile)
      .first->second;
}

std::optional<Duration> Router::slow_after(const Request& request) {
  const bool may_hedge = config_.hedge_quantile > 0 && !request.rival && !request.facts.pinned() &&
                         !request.facts.background;
  const Leg& prefill = request.attempt.prefill;
  return may_hedge ? pace_of(prefill.worker).limit(prefill.tokens) : std::nullopt;
}

void Router::hedge(Request& request, Turn& turn) {
  set_wake(request, request.deadline);
  if (!request.attempt.prefill.running || !may_try_again(request) || !retries_.left() ||
      request.losses.is_suspect(turn.now)) {
    return;
  }
  const WorkerId slow = request.attempt.prefill.worker;
  request.failed.push_back(slow);
  const auto choice = choose(request, turn.now);
  request.failed.pop_back();
  if (!choice || !choice->prefill || !table_.find(choice->prefill->worker)->concurrent()) {
    return;
  }
  retries_.spend();
  pace_of(slow).note_slow();
  request.attempt.prefill.begun = {};
  turn.effects.emplace_back(Hedged{request.id, slow});
  request.rival = request.attempt;
  send(request, *choice, turn);
}

void Router::keep_only(Request& request, const Attempt& kept, Turn& turn) {
  if (!request.rival) {
    return;
  }
  const bool keeps_rival = &kept == &*request.rival;
  Attempt& dropped = keeps_rival ? request.attempt : *request.rival;
  drop_prefill(request, dropped, turn);
  cancel_leg(request, dropped, Stage::kDecode, turn);
  if (keeps_rival) {
    request.attempt = *request.rival;
  }
  request.rival.reset();
}

bool Router::leave_to_rival(Request& request, const Attempt& failed, Turn& turn) {
  const bool has_rival = request.rival.has_value();
  if (has_rival) {
    keep_only(request, &failed == &request.attempt ? *request.rival : request.attempt, turn);
  }
  return has_rival;
}

// --- ends of legs

void Router::note_pace(const Leg& leg, Stage stage, Instant now) {
  if (leg.begun == Instant{}) {
    return;
  }
  if (config_.measured_load) {
    table_.note_pace(leg.worker, leg.work, now - leg.begun);
  }
  if (config_.hedge_quantile > 0 && stage == Stage::kPrefill) {
    pace_of(leg.worker).note(leg.tokens, now - leg.begun);
  }
}

void Router::on(const LegEnded& event, Turn& turn) {
  const auto [request, attempt] = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  Leg& leg = attempt->leg(stage);
  note_pace(leg, stage, turn.now);
  table_.note_whole(leg.worker);
  end_leg(*request, leg);
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      judge_pairs(*request, *attempt, turn);
      complete(*request, turn);
    }
  } else {
    PDJOB_CHECK(stage == Stage::kPrefill, "a decode leg answers before it ends", request->id);
    on_prefilled(*request, *attempt, event, turn);
  }
}

void Router::on_prefilled(Request& request, Attempt& attempt, const LegEnded& event, Turn& turn) {
  if (!event.kv_address.empty()) {
    table_.note_address(attempt.prefill.worker, event.kv_address);
  }
  if (request.state == State::kPrefilling) {
    send_second_hop(request, event.kv_params, turn);
    return;
  }
  // The decode worker may wait for another engine, perhaps forever.
  const bool misled = !attempt.learnt_address.empty() && attempt.learnt_address != event.kv_address;
  if (misled && !leave_to_rival(request, attempt, turn)) {
    cancel_leg(request, attempt, Stage::kDecode, turn);
    attempt.offered = false;
    attempt.number = ++request.attempts_made;
    send_second_hop(request, event.kv_params, turn);
  }
}

void Router::on(const LegFailed& event, Turn& turn) {
  const auto [request, attempt] = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  Leg& leg = attempt->leg(stage);
  const WorkerId worker = leg.worker;
  if (event.reached && event.error.code == ErrorCode::kUnavailable &&
      request->state != State::kAnswered) {
    note_loss(*request, leg, turn.now);
    blame_.settle(request->id, request->losses, turn.now);
  }
  if (event.reached) {
    request->queue_deadline = {};
  }
  end_leg(*request, leg);
  table_.note_failed(worker, turn.now);
  if (event.before_tokens && stage == Stage::kDecode && attempt->prefill.worker != WorkerId{}) {
    request->accused_pairs.emplace_back(attempt->prefill.worker, worker);
  }
  if (stage == Stage::kPrefill) {
    // A worker withdraws its offer when its client's connection breaks.
    attempt->offered = false;
  }
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (request->losses.is_guilty()) {
    convict_killer(*request, turn);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      const bool goes_on =
          event.resumable && !request->facts.pinned() && request->continued < config_.continuations;
      if (goes_on) {
        continue_elsewhere(*request, worker, turn);
      } else {
        abort(*request, turn);
      }
    }
  } else {
    request->failed.push_back(worker);
    if (leave_to_rival(*request, *attempt, turn)) {
      return;
    }
    // A dead worker looks free. Only what was sent is an attempt. The wait goes on.
    if (!event.reached && !request->facts.pinned()) {
      request->tries -= 1;
      request->state = State::kQueued;
    }
    retry(*request, RetryReason::kUnreachable, worker, event.error.message, turn);
  }
}

void Router::continue_elsewhere(Request& request, WorkerId worker, Turn& turn) {
  request.continued += 1;
  request.failed = {worker};
  request.prefill_overloaded = false;
  request.last_failure.clear();
  drop_prefill(request, request.attempt, turn);
  turn.effects.emplace_back(Continued{request.id, worker});
  place(request, turn);
}

// Tries another pair, now or when there is one. After the last attempt, the request is refused.
// Requires: no reply of this attempt can be relayed.
void Router::retry(Request& request, RetryReason reason, WorkerId worker, const std::string& why,
                   Turn& turn) {
  cancel_legs(request, turn);
  request.last_failure = why;
  if (may_try_again(request)) {
    turn.effects.emplace_back(Retried{request.id, reason, worker});
  }
  place(request, turn);
}

}  // namespace pdjob::router
