#include "tests/simulation/sim_worker.h"

#include <utility>

#include "openai/openai.h"
#include "tests/simulation/sim_world.h"
#include "tests/support/worker_words.h"

namespace pdjob::simulation {
namespace {

using worker::Event;
using worker::KvMode;

constexpr Duration kStepDuration = std::chrono::microseconds(500);
constexpr Duration kTokenDuration = std::chrono::microseconds(50);
constexpr Duration kQueueTimeout = std::chrono::seconds(4);

}  // namespace

SimWorker::SimWorker(SimWorld& world, Incarnation incarnation, std::string name, net::Role role,
                     std::unique_ptr<worker::WorkerCore> core, uint32_t queue_max)
    : world_(world),
      incarnation_(incarnation),
      name_(std::move(name)),
      role_(role),
      core_(std::move(core)),
      watch_(world.invariants(), name_,
             {.engine = world.engine_size(role), .requests_queued = queue_max}),
      engine_(world.engine_size(role)),
      sender_(world, *this),
      receiver_(world, *this) {}

bool SimWorker::idle() const {
  const worker::CoreLoad load = core_->load();
  const bool core_idle = load.requests_running == 0 && load.requests_queued == 0 &&
                         load.rows_used == 0 && load.tokens_queued == 0;
  return core_idle && watch_.idle() && live_.empty() && transfers_.empty() && awaited_.empty() &&
         sender_.idle() && receiver_.idle() && !busy_ && exchanges_.empty() && generations_.empty();
}

// --- the API

void SimWorker::on_leg(const LegAsk& ask) {
  const RequestId request{++requests_made_};
  const uint32_t choices = ask.kv == KvMode::kOffer ? 1 : ask.ask.prompt.choices;
  exchanges_[ask.leg] = {.ask = ask, .request = request, .choices_left = choices};
  generations_[request] = ask.leg;
  enqueue([this, ask, request, choices, deadline = world_.now() + kQueueTimeout] {
    if (ask.kv != KvMode::kLocal) {
      const bool is_new = transfers_.emplace(ask.place.transfer, request).second;
      world_.invariants().expect(is_new, "a transfer is used once:", ask.place.transfer);
    }
    live_[request] = {.ask = ask, .choices = std::vector<Choice>(choices), .deadline = deadline};
    const ToyPrompt& asked = ask.ask.prompt;
    std::vector<Token> prompt(asked.tokens);
    for (uint32_t position = 0; position < asked.tokens; ++position) {
      prompt[position] = toy_prompt_token(asked, position);
    }
    feed(worker::RequestArrived{
        .request = request,
        .prompt_tokens = ask.ask.prompt.tokens,
        .choices = choices,
        .max_tokens = ask.kv == KvMode::kOffer ? 1 : ask.ask.prompt.max_tokens,
        .kv = ask.kv,
        .deadline = deadline,
        .prompt = worker::make_prompt(std::move(prompt)),
        .awaited = ask.kv == KvMode::kOffer && awaited_.contains(ask.place.transfer),
        .two_hop = ask.two_hop});
  });
}

void SimWorker::on_leg_closed(const router::LegId& leg) {
  if (const auto found = exchanges_.find(leg); found != exchanges_.end()) {
    const RequestId request = found->second.request;
    drop(request);
    enqueue([this, request] { feed(worker::RequestCancelled{request}); });
  }
}

void SimWorker::on_release(TransferId transfer) {
  enqueue([this, transfer] {
    const auto found = transfers_.find(transfer);
    if (found != transfers_.end() && live(found->second).transferring) {
      to_kv([transfer](SimWorker& worker) {
        worker.sender_.withdraw(transfer,
                                {ErrorCode::kCancelled, "the router gave up the request"});
      });
    }
  });
}

std::vector<router::LegId> SimWorker::legs() const {
  std::vector<router::LegId> legs;
  for (const auto& [leg, exchange] : exchanges_) {
    legs.push_back(leg);
  }
  return legs;
}

void SimWorker::drain() {
  enqueue([this] { feed(worker::DrainAsked{}); });
}

SimWorker::Exchange* SimWorker::exchange_of(RequestId request) {
  const auto found = generations_.find(request);
  return found == generations_.end() ? nullptr : &exchanges_.at(found->second);
}

void SimWorker::apply(const worker::Deliver& effect, std::vector<Event>& /*events*/) {
  if (Exchange* exchange = exchange_of(effect.request)) {
    const Choice& choice = live(effect.request).choices.at(effect.choice);
    deliver(*exchange, {.choice = effect.choice, .token = choice.newest, .finish = effect.finish},
            choice.known);
  }
}

void SimWorker::deliver(Exchange& exchange, const TokenChunk& chunk, bool known) {
  if (known) {
    // The client already has this token.
  } else if (exchange.ask.ask.stream && exchange.ask.kv != KvMode::kOffer) {
    if (!std::exchange(exchange.begun, true)) {
      send_head(exchange, {});
    }
    send_chunk(exchange, chunk);
  } else {
    exchange.held.push_back(chunk);
  }
  exchange.choices_left -= chunk.finish == FinishReason::kNone ? 0 : 1;
  if (exchange.choices_left == 0) {
    finish(exchange);
  }
}

void SimWorker::finish(Exchange& exchange) {
  if (!exchange.begun) {
    send_head(exchange, {});
  }
  for (const TokenChunk& chunk : exchange.held) {
    send_chunk(exchange, chunk);
  }
  const LegAsk& ask = exchange.ask;
  std::optional<KvPlace> place;
  if (ask.kv == KvMode::kOffer) {
    place = KvPlace{.worker = incarnation_, .transfer = ask.place.transfer};
  }
  world_.to_router(exchange.out,
                   [leg = ask.leg, place](SimRouter& router) { router.on_end(leg, place); });
  drop(exchange.request);
}

void SimWorker::apply(const worker::FailRequest& effect, std::vector<Event>& /*events*/) {
  Exchange* exchange = exchange_of(effect.request);
  if (exchange == nullptr) {
    return;
  }
  const router::LegId leg = exchange->ask.leg;
  if (exchange->begun) {
    world_.to_router(exchange->out, [leg](SimRouter& router) { router.on_broken(leg); });
  } else {
    send_head(*exchange, {.status = openai::to_api_error(effect.error).status,
                          .retry_after = effect.error.code == ErrorCode::kOverloaded,
                          .kv_suspect = live(effect.request).pair_suspect});
    world_.to_router(exchange->out, [leg](SimRouter& router) { router.on_end(leg, std::nullopt); });
  }
  drop(effect.request);
}

void SimWorker::drop(RequestId request) {
  const auto found = generations_.find(request);
  exchanges_.erase(found->second);
  generations_.erase(found);
}

void SimWorker::send_head(Exchange& exchange, const Head& head) {
  world_.to_router(exchange.out, [leg = exchange.ask.leg, head](SimRouter& router) {
    router.on_head({.leg = leg,
                    .status = head.status,
                    .retry_after = head.retry_after,
                    .kv_suspect = head.kv_suspect});
  });
}

void SimWorker::send_chunk(Exchange& exchange, const TokenChunk& chunk) {
  world_.to_router(exchange.out, [leg = exchange.ask.leg, chunk](SimRouter& router) {
    router.on_chunk(leg, chunk);
  });
}

// --- the engine thread

void SimWorker::enqueue(Command command) {
  inbox_.push_back(std::move(command));
  if (!busy_) {
    turn();
  }
}

void SimWorker::turn() {
  for (const Command& command : std::exchange(inbox_, {})) {
    command();
  }
  if (core_->next_deadline() <= world_.now()) {
    feed(worker::TimePassed{});
  }
  feed(worker::EngineFree{});
  if (!busy_) {
    wake_at(core_->next_deadline());
  }
}

void SimWorker::wake_at(Instant when) {
  if (when != kNever && when != wake_) {
    wake_ = when;
    world_.post(when, incarnation_, [](SimWorker& worker) { worker.enqueue([] {}); });
  }
}

void SimWorker::feed(const Event& event) {
  std::vector<Event> events{event};
  for (size_t next = 0; next < events.size() && !world_.invariants().broken(); ++next) {
    const Event current = events[next];
    world_.trace(name_, "< " + worker::word(current));
    watch_.before(current);
    std::vector<worker::Effect> effects;
    core_->step(current, world_.now(), effects);
    for (const worker::Effect& effect : effects) {
      world_.trace(name_, "  > " + worker::word(effect));
      watch_.after(effect);
      if (!world_.invariants().broken()) {
        std::visit([&](const auto& what) { apply(what, events); }, effect);
      }
    }
    watch_.check(core_->load());
  }
}

void SimWorker::apply(const worker::RunStep& effect, std::vector<Event>& /*events*/) {
  world_.invariants().expect(!busy_, "one step at a time at", name_);
  busy_ = true;
  uint32_t tokens = 0;
  for (const worker::BatchItem& item : effect.items) {
    tokens += item.count;
  }
  const Duration duration = (kStepDuration + kTokenDuration * tokens) * slowness_;
  world_.post(world_.now() + duration, incarnation_,
              [effect](SimWorker& worker) { worker.finish_step(effect); });
}

bool SimWorker::dies_of(const worker::BatchItem& item) {
  const Ask& ask = live(item.request).ask.ask;
  const bool at_token = !item.prompt && item.samples > 0 &&
                        live(item.request).choices.at(item.choice).generated + 1 >= kPoisonedToken;
  return (ask.kills == Kills::kPrompt && item.prompt) || (ask.kills == Kills::kToken && at_token);
}

void SimWorker::finish_step(const worker::RunStep& step) {
  for (const worker::BatchItem& item : step.items) {
    if (dies_of(item)) {
      world_.crash(incarnation_, live(item.request).ask.ask.id);
      return;
    }
  }
  busy_ = false;
  if (std::exchange(next_step_fails_, false) || world_.fault(world_.dials().step_fails)) {
    feed(worker::StepFailed{{ErrorCode::kInternal, "the engine failed"}});
    return turn();
  }
  worker::StepFinished outcome;
  for (const worker::BatchItem& item : step.items) {
    Live& request = live(item.request);
    world_.invariants().expect(!item.prompt || engine_.rows(item.sequence).size() == item.first,
                               "a prompt goes on where its rows end:", name_, item.request);
    for (uint32_t position = item.first; item.prompt && position < item.first + item.count;
         ++position) {
      engine_.append(item.sequence, toy_prompt_token(request.ask.ask.prompt, position));
    }
    const auto& resumed = request.ask.resumed;
    const bool known = item.choice < resumed.size() && item.first < resumed[item.choice].size();
    for (uint32_t index = item.first; !item.prompt && index < item.first + item.count; ++index) {
      engine_.append(item.sequence, known ? resumed[item.choice].at(index)
                                          : request.choices.at(item.choice).newest);
    }
    sample(item, engine_.logits(item.sequence), outcome);
  }
  feed(outcome);
  turn();
}

void SimWorker::sample(const worker::BatchItem& item, uint64_t logits,
                       worker::StepFinished& outcome) {
  Live& request = live(item.request);
  const Ask& ask = request.ask.ask;
  for (uint32_t index = item.choice; index < item.choice + item.samples; ++index) {
    Choice& choice = request.choices.at(index);
    if (ask.poisoned && choice.generated + 1 == kPoisonedToken) {
      outcome.failed.push_back(
          {item.request, {ErrorCode::kInternal, "the sampler is at a dead end"}});
      return;
    }
    const auto& resumed = request.ask.resumed;
    if (choice.generated == 0 && index < resumed.size() && !resumed[index].empty()) {
      choice.newest = resumed[index].back();
      choice.known = true;
      choice.generated = static_cast<uint32_t>(resumed[index].size());
      outcome.sampled.push_back({.request = item.request,
                                 .choice = index,
                                 .stopped = toy_stops(choice.newest),
                                 .count = choice.generated});
      continue;
    }
    choice.known = false;
    const ToyToken token = toy_sample(logits, ask.prompt.seed, index, choice.generated);
    choice.newest = token.token;
    ++choice.generated;
    outcome.sampled.push_back({.request = item.request, .choice = index, .stopped = token.stopped});
  }
}

SimWorker::Live& SimWorker::live(RequestId request) {
  const auto found = live_.find(request);
  PDJOB_CHECK(found != live_.end(), name_, request);
  return found->second;
}

void SimWorker::forget(RequestId request) {
  const auto found = live_.find(request);
  if (found == live_.end() || !found->second.ended || found->second.transferring) {
    return;
  }
  if (found->second.ask.kv != KvMode::kLocal) {
    transfers_.erase(found->second.ask.place.transfer);
  }
  live_.erase(found);
}

void SimWorker::apply(const worker::EndRequest& effect, std::vector<Event>& /*events*/) {
  Live& request = live(effect.request);
  request.ended = true;
  if (std::exchange(request.awaiting, false)) {
    to_kv([id = request.ask.place.transfer](SimWorker& worker) { worker.receiver_.cancel(id); });
  }
  forget(effect.request);
}

void SimWorker::apply(const worker::ReportDrained& /*effect*/, std::vector<Event>& /*events*/) {
  drained_ = true;
}

void SimWorker::apply(const worker::ForkSequence& effect, std::vector<Event>& /*events*/) {
  engine_.fork(effect.from, effect.to);
}

void SimWorker::apply(const worker::ClearSequence& effect, std::vector<Event>& /*events*/) {
  engine_.clear(effect.sequence);
}

void SimWorker::apply(const worker::TrimSequence& effect, std::vector<Event>& /*events*/) {
  engine_.trim(effect.sequence, effect.rows);
}

void SimWorker::apply(const worker::ReportReuse& effect, std::vector<Event>& /*events*/) {
  world_.count_reused(effect.rows);
}

// The simulated workers report no caches.
void SimWorker::apply(const worker::ReportKept& /*effect*/, std::vector<Event>& /*events*/) {}

// --- the engine thread and the endpoint

void SimWorker::to_kv(std::function<void(SimWorker&)> call) {
  world_.post(world_.network().hand_over(to_kv_), incarnation_, std::move(call));
}

void SimWorker::from_kv(Command command) {
  world_.post(world_.network().hand_over(from_kv_), incarnation_,
              [command = std::move(command)](SimWorker& worker) { worker.enqueue(command); });
}

void SimWorker::apply(const worker::AwaitFetch& effect, std::vector<Event>& /*events*/) {
  Live& request = live(effect.request);
  request.awaiting = true;
  to_kv([place = request.ask.place, until = request.deadline](SimWorker& worker) {
    worker.receiver_.await(place.transfer, place.worker, until);
  });
}

void SimWorker::apply(const worker::StartFetch& effect, std::vector<Event>& events) {
  if (world_.fault(world_.dials().reserve_fails)) {
    events.push_back(
        worker::FetchFailed{effect.request, {ErrorCode::kOverloaded, "no rows could be reserved"}});
    return;
  }
  engine_.reserve(effect.sequence, effect.rows);
  Live& request = live(effect.request);
  request.transferring = true;
  request.awaiting = false;
  to_kv([=, place = request.ask.place, deadline = request.deadline](SimWorker& worker) {
    worker.receiver_.fetch(place.transfer, place.worker, effect.sequence, effect.rows, deadline);
  });
}

void SimWorker::apply(const worker::CancelFetch& effect, std::vector<Event>& /*events*/) {
  to_kv([id = live(effect.request).ask.place.transfer](SimWorker& worker) {
    worker.receiver_.cancel(id);
  });
}

void SimWorker::apply(const worker::SampleTail& effect, std::vector<Event>& events) {
  Live& request = live(effect.request);
  world_.invariants().expect(request.tail.has_value(),
                             "decoding starts only when the transfer is complete:", name_,
                             effect.request);
  if (!request.tail) {
    return;
  }
  worker::StepFinished sampled;
  sample({.request = effect.request, .samples = effect.choices}, *request.tail, sampled);
  events.push_back(worker::TailSampled{.sampled = sampled.sampled, .failed = sampled.failed});
}

void SimWorker::apply(const worker::StartOffer& effect, std::vector<Event>& /*events*/) {
  Live& request = live(effect.request);
  request.transferring = true;
  to_kv([id = request.ask.place.transfer, source = effect.sequence,
         deadline = world_.now() + SimWorld::kLease](SimWorker& worker) {
    worker.sender_.offer(id, source, deadline);
  });
}

void SimWorker::apply(const worker::OfferRows& effect, std::vector<Event>& /*events*/) {
  to_kv([id = live(effect.request).ask.place.transfer, ready = effect.ready](SimWorker& worker) {
    worker.sender_.rows_ready(id, ready);
  });
}

void SimWorker::apply(const worker::CommitOffer& effect, std::vector<Event>& /*events*/) {
  to_kv([id = live(effect.request).ask.place.transfer, rows = effect.rows,
         tail = engine_.logits(effect.sequence)](SimWorker& worker) {
    worker.sender_.commit(id, rows, tail);
  });
}

void SimWorker::apply(const worker::WithdrawOffer& effect, std::vector<Event>& /*events*/) {
  to_kv([id = live(effect.request).ask.place.transfer](SimWorker& worker) {
    worker.sender_.withdraw(id,
                            {ErrorCode::kCancelled, "the prefill request was cancelled or failed"});
  });
}

RequestId SimWorker::request_of(TransferId id) {
  const auto found = transfers_.find(id);
  PDJOB_CHECK(found != transfers_.end(), name_, id);
  return found->second;
}

void SimWorker::offer_awaited(TransferId id, bool awaited) {
  from_kv([=, this] {
    if (awaited) {
      awaited_.insert(id);
    } else {
      awaited_.erase(id);
    }
    const auto found = transfers_.find(id);
    if (found != transfers_.end() && live(found->second).ask.kv == KvMode::kOffer) {
      feed(worker::OfferAwaited{.request = found->second, .awaited = awaited});
    }
  });
}

void SimWorker::offer_ended(TransferId id) {
  from_kv([this, id] {
    const RequestId request = request_of(id);
    live(request).transferring = false;
    feed(worker::OfferEnded{request});
    forget(request);
  });
}

void SimWorker::fetch_done(TransferId id, uint64_t tail) {
  from_kv([this, id, tail] {
    const RequestId request = request_of(id);
    live(request).transferring = false;
    live(request).tail = tail;
    feed(worker::RowsFetched{request});
  });
}

void SimWorker::fetch_failed(TransferId id, const FailedFetch& failed) {
  from_kv([=, this] {
    const RequestId request = request_of(id);
    live(request).transferring = !failed.region_safe;
    live(request).pair_suspect = failed.pair_suspect;
    feed(worker::FetchFailed{.request = request,
                             .error = {ErrorCode::kPeerFailed, failed.error.message},
                             .region_safe = failed.region_safe});
    forget(request);
  });
}

void SimWorker::fetch_released(TransferId id) {
  from_kv([this, id] {
    const RequestId request = request_of(id);
    live(request).transferring = false;
    feed(worker::FetchReleased{request});
    forget(request);
  });
}

void SimWorker::write_rows(TransferId id, SequenceId target, uint32_t first,
                           const std::vector<Row>& rows) {
  const auto found = transfers_.find(id);
  const bool theirs = found != transfers_.end() && watch_.may_be_written(target, found->second);
  world_.invariants().expect(theirs, "no rows are written for a sequence that was given on, but",
                             target, "at", name_);
  if (theirs) {
    std::copy(rows.begin(), rows.end(), engine_.rows(target).begin() + first);
  }
}

}  // namespace pdjob::simulation
