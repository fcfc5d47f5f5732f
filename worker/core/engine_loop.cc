#include "worker/core/engine_loop.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "worker/core/fingerprint.h"
#include "worker/core/prompt_reader.h"

namespace pdjob::worker {
namespace {

kvtransfer::Region to_region(const engine::KvRegion& region) {
  kvtransfer::Region result{.rows_max = region.rows_max,
                            .shared_fd = region.shared_fd,
                            .shared_bytes = region.shared_bytes,
                            .device = region.device};  // All KV of a worker is in one memory.
  result.windows.reserve(region.windows.size());
  for (const engine::KvWindow& window : region.windows) {
    result.windows.push_back({.base = window.base,
                              .shared_offset = window.shared_offset,
                              .row_bytes = window.row_bytes});
  }
  return result;
}

// A tail: the last token's logits, and the number of the prompt's rows that existed before.
std::vector<std::byte> tail_of(std::span<const float> logits, uint32_t reused) {
  const auto bytes = std::as_bytes(logits);
  std::vector<std::byte> tail;
  tail.reserve(bytes.size() + sizeof reused);
  tail.assign(bytes.begin(), bytes.end());
  const auto number = std::as_bytes(std::span(&reused, 1));
  tail.insert(tail.end(), number.begin(), number.end());
  return tail;
}

// Takes the number off the end.
std::optional<uint32_t> take_reused(std::vector<std::byte>& tail) {
  uint32_t reused = 0;
  if (tail.size() < sizeof reused) {
    return std::nullopt;
  }
  std::memcpy(&reused, tail.data() + tail.size() - sizeof reused, sizeof reused);
  tail.resize(tail.size() - sizeof reused);
  return reused;
}

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;  // clang 14 does not find it by itself.

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, std::unique_ptr<WorkerCore> core,
                       EngineLoopOptions options)
    : engine_(engine),
      core_(std::move(core)),
      options_(std::move(options)),
      blocks_(engine, {.meaning = kvtransfer::encode(link_fingerprint(engine.facts())),
                       .now = options_.now,
                       .seed = options_.transfer_seed}) {}

Instant EngineLoop::turn(std::span<EngineCommand> commands) {
  load_changed_ = !commands.empty();
  for (EngineCommand& command : commands) {
    take(command);
  }
  if (core_->next_wakeup() <= now()) {
    feed(TimePassed{});
  }
  if (!outputs_.empty()) {
    deliver_outputs();  // A first token from fetched logits does not wait for a step.
  }
  stepped_ = false;
  feed(EngineFree{});
  deliver_outputs();
  blocks_.tell_of_new_blocks();
  return stepped_ ? Instant::min() : core_->next_wakeup();
}

void EngineLoop::take(EngineCommand& command) {
  std::visit(
      Overloaded{
          [this](GenerationRequest& request) {
            const Prompt prompt = make_prompt(std::move(request.prompt), request.tenant);
            const RequestArrived arrived{
                .request = request.id,
                .group = request.group,
                .prompt_tokens = static_cast<uint32_t>(prompt->tokens.size()),
                .choices = static_cast<uint32_t>(request.samplers.size()),
                .max_tokens =
                    request.prompt_only ? 1 : static_cast<uint32_t>(request.stop.max_tokens),
                .kv = request.kv,
                .deadline = request.deadline,
                .prompt = request.shares_prompt ? prompt : nullptr,
                .reads_prompt = request.reading != PromptReading::kNothing,
                .has_store = request.store.has_value() && request.shares_prompt,
                .background = request.background,
                .awaited = request.kv == KvMode::kOffer && awaited_.contains(request.link_transfer),
                .two_hop = request.two_hop};
            blocks_.use(request.store);
            if (request.kv != KvMode::kLocal &&
                !by_transfer_.emplace(request.link_transfer, request.id).second) {
              // Not the client's mistake: a request whose connection broke was sent again.
              outputs_.push_back(RequestFailed{
                  .request = request.id,
                  .error = {ErrorCode::kUnavailable, "transfer " + request.transfer.to_string() +
                                                         " is under way here already"}});
              return;
            }
            const PromptReader reader(request.reading, request.prompt_alternatives);
            Live live{.request = std::move(request), .prompt = prompt, .reader = reader};
            if (live.request.background) {
              live.request.resumed.resize(live.request.samplers.size());
            }
            live.choices.resize(live.request.samplers.size(),
                                {.text = engine::TextStream(live.request.stop)});
            const bool is_new = live_.emplace(arrived.request, std::move(live)).second;
            PDJOB_CHECK(is_new, arrived.request);
            feed(arrived);
          },
          [this](const RequestCancelled& cancelled) { feed(cancelled); },
          [this](const ReleaseOffer& released) { release_offer(released.transfer); },
          [this](const DrainAsked& asked) { feed(asked); },
          [this](kvtransfer::EndpointEvent& event) { take_endpoint_event(event); },
      },
      command);
}

// Searches by the router's name of the transfer. Releases are rare, so there is no index.
void EngineLoop::release_offer(TransferId transfer) {
  for (const auto& [id, live] : live_) {
    const GenerationRequest& request = live.request;
    if (request.kv == KvMode::kOffer && request.transfer == transfer &&
        live.transfer == TransferState::kUnderWay) {
      transfers_->withdraw(request.link_transfer,
                           {ErrorCode::kCancelled, "the router gave up the request"});
    }
  }
}

RequestId EngineLoop::request_of(TransferId transfer) const {
  const auto found = by_transfer_.find(transfer);
  PDJOB_CHECK(found != by_transfer_.end(), transfer);
  return found->second;
}

void EngineLoop::take_endpoint_event(kvtransfer::EndpointEvent& event) {
  std::vector<BlockExchange::News> news;
  if (!blocks_.take(event, news)) {
    return std::visit(
        Overloaded{[this](auto& e) { take_endpoint_event(e); }, [](kvtransfer::BlocksTold&) {}},
        event);
  }
  std::vector<Event> events;
  take_block_news(news, events);
  for (Event& each : events) {
    feed(std::move(each));
  }
}

void EngineLoop::take_block_news(const std::vector<BlockExchange::News>& news,
                                 std::vector<Event>& events) {
  for (const BlockExchange::News& each : news) {
    std::visit(Overloaded{[&](const BlockExchange::Loaded& loaded) {
                            events.emplace_back(LoadEnded{.sequence = loaded.sequence,
                                                          .rows = loaded.rows,
                                                          .region_safe = loaded.region_safe});
                          },
                          [&](const BlockExchange::Released& released) {
                            events.emplace_back(LoadReleased{released.sequence});
                          }},
               each);
  }
}

void EngineLoop::take_endpoint_event(const kvtransfer::OfferAwaited& event) {
  if (event.awaited) {
    awaited_.insert(event.id);
  } else {
    awaited_.erase(event.id);
  }
  // A peer may wait for any id, even one that is not an offer.
  const auto found = by_transfer_.find(event.id);
  if (found != by_transfer_.end() && live_.at(found->second).request.kv == KvMode::kOffer) {
    feed(OfferAwaited{.request = found->second, .awaited = event.awaited});
  }
}

void EngineLoop::take_endpoint_event(const kvtransfer::OfferDone& event) {
  const RequestId request = request_of(event.id);
  live_.at(request).transfer = TransferState::kNone;
  feed(OfferEnded{request});
  forget(request);
}

void EngineLoop::take_endpoint_event(const kvtransfer::OfferFailed& event) {
  const GenerationRequest& request = live_.at(request_of(event.id)).request;
  log::info("request " + request.log_name + ": offer " + request.transfer.to_string() +
            " ended: " + event.error.message);
  take_endpoint_event(kvtransfer::OfferDone{.id = event.id});
}

void EngineLoop::take_endpoint_event(kvtransfer::FetchDone& event) {
  const RequestId request = request_of(event.id);
  Live& live = live_.at(request);
  live.transfer = TransferState::kNone;
  const auto fail = [&](const std::string& what) {
    feed(FetchFailed{.request = request,
                     .error = {ErrorCode::kPeerFailed, "the prefill worker sent " + what}});
  };
  // A sender pushes the rows that it has. They belong to another prompt if a transfer id was used
  // twice. Rows that do not arrive still belong to the sequence's previous request.
  if (const size_t wanted = live.prompt->tokens.size(); event.rows != wanted) {
    return fail("the KV of " + std::to_string(event.rows) + " tokens for a prompt of " +
                std::to_string(wanted));
  }
  const auto reused = take_reused(event.tail);
  if (!reused || event.tail.size() != engine_.facts().vocabulary * sizeof(float)) {
    return fail(std::to_string(event.tail.size()) + " bytes of logits, not one row");
  }
  live.tail = std::move(event.tail);
  blocks_.sequences().append(live.fetched_into, live.prompt->tokens,
                             live.request.shares_prompt ? &live.prompt->tenant : nullptr);
  outputs_.push_back(KvFetched{.request = request,
                               .bytes = event.bytes,
                               .duration = event.duration,
                               .visible = event.visible,
                               .transport = std::move(event.transport),
                               .prompt_reused = std::min(*reused, event.rows)});
  feed(RowsFetched{request});
}

void EngineLoop::take_endpoint_event(const kvtransfer::FetchFailed& event) {
  const RequestId request = request_of(event.id);
  Live& live = live_.at(request);
  live.transfer = event.region_safe ? TransferState::kNone : TransferState::kUnderWay;
  live.pair_suspect = event.pair_suspect;
  feed(FetchFailed{
      .request = request,
      .error = {ErrorCode::kPeerFailed, "the prompt's KV did not come: " + event.error.message},
      .region_safe = event.region_safe});
  forget(request);
}

void EngineLoop::take_endpoint_event(const kvtransfer::FetchReleased& event) {
  const RequestId request = request_of(event.id);
  live_.at(request).transfer = TransferState::kNone;
  feed(FetchReleased{request});
  forget(request);
}

void EngineLoop::feed(Event event) {
  std::vector<Event> events{std::move(event)};
  for (size_t next = 0; next < events.size(); ++next) {
    effects_.clear();
    core_->step(events[next], now(), effects_);
    for (Effect& effect : effects_) {
      apply(effect, events);
    }
  }
}

void EngineLoop::apply(Effect& effect, std::vector<Event>& events) {
  std::visit(
      Overloaded{
          [&](const RunStep& e) { apply_step(e, events); },
          [&](const AwaitFetch& e) {
            Live& live = live_.at(e.request);
            live.transfer = TransferState::kAwaited;
            transfers_->await(live.request.link_transfer, live.request.peer, live.request.deadline);
          },
          [&](const StartFetch& e) { apply_fetch(e, events); },
          [&](const CancelFetch& e) {
            transfers_->cancel(live_.at(e.request).request.link_transfer);
          },
          [&](const SampleTail& e) {
            Live& live = live_.at(e.request);
            TailSampled outcome;
            const std::span<const float> logits(reinterpret_cast<const float*>(live.tail.data()),
                                                live.tail.size() / sizeof(float));
            sample(live, 0, e.choices, logits, outcome.sampled, outcome.failed);
            live.tail = {};
            events.emplace_back(std::move(outcome));
          },
          [&](const StartOffer& e) {
            Live& live = live_.at(e.request);
            live.transfer = TransferState::kUnderWay;
            transfers_->offer(live.request.link_transfer, to_region(engine_.kv_region(e.sequence)),
                              now() + options_.kv_lease);
          },
          [&](const OfferRows& e) {
            transfers_->rows_ready(live_.at(e.request).request.link_transfer, e.ready);
          },
          [&](const CommitOffer& e) {
            const Live& live = live_.at(e.request);
            transfers_->commit(live.request.link_transfer, e.rows,
                               tail_of(engine_.logits(e.sequence), live.reused));
          },
          [&](const WithdrawOffer& e) {
            transfers_->withdraw(
                live_.at(e.request).request.link_transfer,
                {ErrorCode::kCancelled, "the prefill request was cancelled or failed"});
          },
          [&](const LoadRows& e) {
            std::vector<BlockExchange::News> news;
            const Prompt all = e.prompt != nullptr ? e.prompt : all_tokens(live_.at(e.request));
            blocks_.load(e.sequence,
                         {.tokens = {all, &all->tokens},
                          .tenant = all->tenant,
                          .elsewhere = live_.at(e.request).request.elsewhere},
                         e.rows, news);
            take_block_news(news, events);
          },
          [&](const CancelLoad& e) { blocks_.cancel(e.sequence); },
          [&](const ForkSequence& e) {
            blocks_.sequences().copy(e.from, e.to);
            if (const Status forked = engine_.fork(e.from, e.to); !forked) {
              PDJOB_CHECK(false, "fork of a sequence into a free one:", forked.error().message);
            }
          },
          [&](const ClearSequence& e) {
            blocks_.about_to_trim(e.sequence, 0);
            engine_.clear(e.sequence);
          },
          [&](const TrimSequence& e) {
            blocks_.about_to_trim(e.sequence, e.rows);
            engine_.trim(e.sequence, e.rows);
          },
          [&](const ReportReuse& e) {
            live_.at(e.request).reused = e.rows;
            outputs_.push_back(PromptReused{
                .request = e.request, .prompt_tokens = e.prompt_tokens, .rows = e.rows});
          },
          [&](const ReportKept& e) { kept_.push_back(e); },
          [&](const Deliver& e) { apply_deliver(e); },
          [&](const EndRequest& e) {
            Live& live = live_.at(e.request);
            live.ended = true;
            if (live.transfer == TransferState::kAwaited) {
              live.transfer = TransferState::kNone;
              transfers_->cancel(live.request.link_transfer);
            }
            forget(e.request);
          },
          [&](FailRequest& e) {
            const Live& live = live_.at(e.request);
            outputs_.push_back(RequestFailed{
                .request = e.request,
                .error = std::move(e.error),
                .kv_suspect = live.pair_suspect ? live.request.peer.engine_id : std::string()});
          },
          [&](const ReportDrained&) { outputs_.push_back(WorkerDrained{}); },
      },
      effect);
}

Prompt EngineLoop::all_tokens(const Live& live) {
  std::vector<Token> tokens = live.prompt->tokens;
  const std::vector<Token>& resumed = live.request.resumed.front();
  tokens.insert(tokens.end(), resumed.begin(), resumed.end());
  return make_prompt(std::move(tokens), live.prompt->tenant);
}

std::span<const Token> EngineLoop::tokens_of(const Live& live, const BatchItem& item) {
  if (item.prompt) {
    return std::span<const Token>(live.prompt->tokens).subspan(item.first, item.count);
  }
  const auto& resumed = live.request.resumed;
  if (item.choice < resumed.size() && item.first < resumed[item.choice].size()) {
    return std::span<const Token>(resumed[item.choice]).subspan(item.first, item.count);
  }
  return {&live.choices[item.choice].newest, 1};
}

void EngineLoop::apply_step(const RunStep& effect, std::vector<Event>& events) {
  std::vector<engine::StepItem> items;
  items.reserve(effect.items.size());
  size_t tokens = 0;
  size_t background = 0;
  net::StepTotals totals{.steps = 1};
  for (const BatchItem& item : effect.items) {
    tokens += item.count;
    totals.rows_read += uint64_t{item.count} * engine_.length(item.sequence) +
                        uint64_t{item.count} * (item.count - 1) / 2;
    const Live& live = live_.at(item.request);
    background += live.request.background ? item.count : 0;
    const engine::EveryToken every =
        item.prompt ? live.reader.every() : engine::EveryToken::kNothing;
    totals.outputs += every != engine::EveryToken::kNothing ? item.count : item.samples > 0 ? 1 : 0;
    // Reused rows belong to the tokens before `first`.
    PDJOB_CHECK(!item.prompt || engine_.length(item.sequence) == item.first, item.sequence,
                item.first);
    items.push_back({.sequence = item.sequence,
                     .tokens = tokens_of(live, item),
                     .wants_logits = item.samples > 0,
                     .every = every});
  }
  stepped_ = true;
  options_.before_step(tokens);
  const Instant began = now();
  const Status done = engine_.step(items);
  const Duration took = now() - began;
  const Duration background_part = took * background / std::max<size_t>(tokens, 1);
  work_.busy += took;
  work_.background_busy += background_part;
  if (!done) {
    log::error("engine step failed: " + done.error().message);
    events.emplace_back(StepFailed{done.error()});
    return;
  }
  work_.tokens += tokens;
  work_.background_tokens += background;
  work_.lending = engine_.lending();
  if (!work_.lending.borrowed) {
    totals.us = static_cast<uint64_t>(took / std::chrono::microseconds(1));
    totals.tokens = tokens;
    work_.steps.add(totals);
  }
  StepFinished outcome;
  for (size_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = effect.items[i];
    Live& live = live_.at(item.request);
    // First: a sampled token replaces the newest one, which is among the items.
    blocks_.sequences().append(item.sequence, items[i].tokens,
                               live.request.shares_prompt ? &live.prompt->tenant : nullptr);
    if (const Status read = read_prompt(live, item); !read) {
      outcome.failed.push_back({.request = item.request, .error = read.error()});
    } else if (item.samples > 0) {
      sample(live, item.choice, item.samples, engine_.logits(item.sequence), outcome.sampled,
             outcome.failed);
    }
  }
  events.emplace_back(std::move(outcome));
}

void EngineLoop::apply_fetch(const StartFetch& effect, std::vector<Event>& events) {
  Live& live = live_.at(effect.request);
  if (const Status reserved = engine_.reserve(effect.sequence, effect.rows); !reserved) {
    events.emplace_back(FetchFailed{.request = effect.request,
                                    .error = reserved.error().during("reserving KV rows")});
    return;
  }
  live.transfer = TransferState::kUnderWay;
  live.fetched_into = effect.sequence;
  // The fetch uses the request's deadline, not the lease: a prompt may wait longer than that at a
  // busy prefill worker. The link detects a dead one.
  transfers_->fetch(live.request.link_transfer, live.request.peer,
                    to_region(engine_.kv_region(effect.sequence)), effect.rows,
                    live.request.deadline);
}

void EngineLoop::sample(Live& live, uint32_t choice, uint32_t count, std::span<const float> logits,
                        std::vector<SampledToken>& sampled, std::vector<SampleFailure>& failed) {
  for (uint32_t index = choice; index < choice + count; ++index) {
    if (live.request.prompt_only) {
      live.choices[index].output = {.no_token = true};  // Deliver completes it.
      sampled.push_back({.request = live.request.id, .choice = index});
      continue;
    }
    if (index < live.request.resumed.size() && !live.choices[index].begun &&
        !live.request.resumed[index].empty()) {
      if (auto known = resume(live, index, live.request.resumed[index])) {
        sampled.push_back(*known);
        continue;
      } else {
        failed.push_back({.request = live.request.id, .error = known.error()});
        return;
      }
    }
    auto token = live.request.samplers[index]->sample(logits);
    if (!token) {
      failed.push_back({.request = live.request.id, .error = token.error()});
      return;
    }
    const bool stopped = take_token(live, live.choices[index], std::move(*token));
    if (live.request.background) {
      live.request.resumed[index].push_back(live.choices[index].newest);
    }
    sampled.push_back({.request = live.request.id, .choice = index, .stopped = stopped});
  }
}

Status EngineLoop::read_prompt(Live& live, const BatchItem& item) {
  const PromptReading reading = live.request.reading;
  if (!item.prompt || reading == PromptReading::kNothing) {
    return ok();
  }
  const std::vector<Token>& prompt = live.prompt->tokens;
  PDJOB_TRY_STATUS(live.reader.take(engine_, item.sequence, prompt, item.first, item.count));
  if (item.first + item.count < prompt.size()) {
    return ok();
  }
  if (reading == PromptReading::kLogprobs) {
    outputs_.push_back(
        PromptScored{.request = item.request, .logprobs = live.reader.take_logprobs()});
  } else {
    outputs_.push_back(PromptEmbedded{
        .request = item.request, .embedding = live.reader.take_embedding(engine_.facts().pooling)});
  }
  return ok();
}

Result<SampledToken> EngineLoop::resume(Live& live, uint32_t index,
                                        const std::vector<Token>& tokens) {
  Choice& choice = live.choices[index];
  bool stopped = false;
  for (const Token& token : tokens) {
    if (stopped) {
      return Error{ErrorCode::kInvalidArgument,
                   "the generation to go on with had ended before its last token"};
    }
    live.request.samplers[index]->accept(token);
    stopped = take_token(live, choice, {.token = token});
    choice.output.resumed = true;
    if (&token != &tokens.back()) {
      choice.output.request = live.request.id;
      choice.output.choice = index;
      outputs_.push_back(std::exchange(choice.output, {}));
    }
  }
  return SampledToken{.request = live.request.id,
                      .choice = index,
                      .stopped = stopped,
                      .count = static_cast<uint32_t>(tokens.size())};
}

bool EngineLoop::take_token(Live& live, Choice& choice, GeneratedToken token) {
  const engine::Vocabulary& vocabulary = engine_.vocabulary();
  const StopParams& stop = live.request.stop;
  choice.newest = token.token;
  choice.begun = true;
  choice.output.resumed = false;
  choice.output.token = std::move(token);
  choice.output.text.clear();
  choice.output.stop_string.clear();
  const bool is_end = vocabulary.is_end(choice.newest) && !live.request.ignore_eos;
  const bool is_stop_token = std::find(stop.token_ids.begin(), stop.token_ids.end(),
                                       choice.newest) != stop.token_ids.end();
  // Before min_tokens, the sampler chooses such a token only if no other can follow.
  choice.output.shown = !is_end && !is_stop_token;
  const bool in_text = choice.output.shown || stop.include_stop_string;
  using Stops = engine::TextStream::Stops;
  const bool early = ++choice.tokens <= static_cast<uint32_t>(std::max(0, stop.min_tokens));
  const bool stopped =
      in_text && choice.text.push(vocabulary.piece(choice.newest, !stop.skip_special_tokens),
                                  choice.output.text, early ? Stops::kPass : Stops::kCount);
  if (stopped && choice.output.shown) {
    choice.output.stop_string = choice.text.stop();
  }
  return stopped || !choice.output.shown;
}

void EngineLoop::apply_deliver(const Deliver& effect) {
  Choice& choice = live_.at(effect.request).choices[effect.choice];
  TokenOutput& output = choice.output;
  output.request = effect.request;
  output.choice = effect.choice;
  output.finish = effect.finish;
  if (effect.finish != FinishReason::kNone) {
    choice.text.finish(output.text);
  }
  outputs_.push_back(std::move(output));
}

void EngineLoop::forget(RequestId request) {
  const auto found = live_.find(request);
  if (found == live_.end() || !found->second.ended ||
      found->second.transfer != TransferState::kNone) {
    return;
  }
  if (found->second.request.kv != KvMode::kLocal) {
    by_transfer_.erase(found->second.request.link_transfer);
  }
  live_.erase(found);
}

void EngineLoop::deliver_outputs() {
  work_.blocks = blocks_.totals();
  if (outputs_.empty() && kept_.empty() && !load_changed_) {
    return;
  }
  options_.sink({.outputs = std::exchange(outputs_, {}),
                 .kept = std::exchange(kept_, {}),
                 .load = core_->load(),
                 .work = work_});
}

}  // namespace pdjob::worker
