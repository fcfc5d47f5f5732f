#include "tests/simulation/sim_router.h"

#include "tests/simulation/router_words.h"
#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {

using router::KvPart;
using worker::KvMode;

// --- from clients and the launcher

void SimRouter::arrive(const Ask& ask) {
  step(router::RequestArrived{ask.id,
                              {.model = ask.model,
                               .prompt_tokens = ask.prompt.tokens,
                               .output_tokens = ask.prompt.max_tokens}});
}

void SimRouter::client_left(RequestId id) {
  if (world_.clients().waiting(id)) {
    step(router::ClientLeft{id});
  }
}

void SimRouter::on_workers_changed(const std::vector<net::WorkerEntry>& workers,
                                   const std::vector<net::Departure>& left) {
  step(router::WorkersChanged{workers, left});
}

void SimRouter::on_load(const std::string& name, Incarnation incarnation,
                        const net::WorkerLoad& load) {
  step(router::LoadChanged{
      .name = name, .engine_id = std::to_string(incarnation.value), .load = load});
}

void SimRouter::drain() { step(router::DrainRequested{}); }

// --- from workers

void SimRouter::on_head(const router::LegAnswered& head) {
  if (const auto found = legs_.find(head.leg); found != legs_.end()) {
    found->second.status = head.status;
    step(head);
  }
}

void SimRouter::on_chunk(const router::LegId& id, const TokenChunk& chunk) {
  const auto found = legs_.find(id);
  if (found == legs_.end()) {
    return;
  }
  if (found->second.relayed) {
    pass_on(id.request, chunk);
  } else {
    found->second.held.push_back(chunk);
  }
}

void SimRouter::pass_on(RequestId request, const TokenChunk& chunk) {
  world_.clients().on_token(request, chunk.choice, chunk.token, chunk.finish);
  auto& choices = passed_[request];
  choices.resize(std::max<size_t>(choices.size(), chunk.choice + 1));
  choices[chunk.choice].push_back(chunk.token);
}

void SimRouter::on_end(const router::LegId& id, const std::optional<KvPlace>& place) {
  if (legs_.erase(id) > 0) {
    router::LegEnded ended{.leg = id, .kv_params = place.has_value()};
    if (place) {
      places_[id.request] = *place;
      ended.kv_address = learns_addresses() ? std::to_string(place->worker.value) : "";
    }
    step(ended);
  }
}

bool SimRouter::on_broken(const router::LegId& id, bool reached) {
  const auto found = legs_.find(id);
  if (found == legs_.end()) {
    return false;
  }
  const bool resumable = found->second.relayed && passed_.contains(id.request) &&
                         world_.clients().ask(id.request).stream;
  legs_.erase(found);
  step(router::LegFailed{.leg = id,
                         .error = {ErrorCode::kUnavailable, "the connection broke off"},
                         .resumable = resumable,
                         .reached = reached});
  return true;
}

void SimRouter::break_leg(uint64_t draw) {
  if (legs_.empty()) {
    return;
  }
  const auto found = std::next(legs_.begin(), static_cast<ptrdiff_t>(draw % legs_.size()));
  const router::LegId id = found->first;
  close_at_worker(id, found->second);
  world_.clients().on_connection_broken(id.request);
  on_broken(id);
}

// --- the core

void SimRouter::step(const router::RouterEvent& event) {
  world_.trace("router", "< " + std::visit(RouterWording{}, event));
  std::vector<router::RouterEffect> effects;
  core_.step(event, world_.now(), effects);
  for (const router::RouterEffect& effect : effects) {
    world_.trace("router", "  > " + std::visit(RouterWording{}, effect));
    std::visit([this](const auto& what) { apply(what); }, effect);
  }
  world_.invariants().expect(core_.requests_alive() <= config_.requests_max,
                             "the router keeps its bound");
  wake_at(core_.next_wakeup());
}

void SimRouter::wake_at(Instant when) {
  if (when == kNever || when == wake_) {
    return;
  }
  wake_ = when;
  world_.loop().at(when, [this] {
    if (core_.next_wakeup() <= world_.now()) {
      step(router::TimePassed{});
    }
  });
}

Incarnation SimRouter::incarnation_of(WorkerId worker) const {
  const router::Worker* row = core_.workers().find(worker);
  return row == nullptr ? Incarnation{} : Incarnation{std::stoull(row->entry.engine_id)};
}

// Returns the address at which a decode leg finds this prefill worker's KV.
Incarnation SimRouter::address_of(WorkerId worker) const {
  return learns_addresses() ? Incarnation{std::stoull(core_.workers().find(worker)->kv_address())}
                            : incarnation_of(worker);
}

void SimRouter::apply(const router::StartLeg& effect) {
  const Ask& asked = world_.clients().ask(effect.leg.request);
  world_.invariants().expect(core_.workers().find(effect.worker)->entry.model == asked.model,
                             "a request is served by workers of its model", asked.id);
  LegAsk ask{.leg = effect.leg, .ask = asked};
  if (effect.resumes) {
    ask.resumed = passed_.at(asked.id);
  }
  switch (effect.kv) {
    case KvPart::kNone:
      break;
    case KvPart::kOffer:
      ask.kv = KvMode::kOffer;
      ask.place.transfer = effect.transfer;
      break;
    case KvPart::kOfferUnnamed:  // The worker makes the id; the simulation makes one as unique.
      ask.kv = KvMode::kOffer;
      ask.place.transfer = {.high = 1, .low = asked.id.value << 8 | effect.leg.attempt};
      ask.two_hop = true;
      break;
    case KvPart::kFetch:
      ask.kv = KvMode::kFetch;
      ask.place = {.worker = address_of(effect.peer), .transfer = effect.transfer};
      break;
    case KvPart::kFetchReturned:
      ask.kv = KvMode::kFetch;
      ask.place = places_.at(asked.id);
      break;
  }
  Leg& leg = legs_[effect.leg];
  leg = {.worker = incarnation_of(effect.worker)};
  const Instant arrival = world_.network().arrival(leg.to_worker);
  if (world_.find(leg.worker) == nullptr) {
    world_.loop().at(arrival, [this, id = effect.leg] {
      on_broken(id, /*reached=*/false);  // Connection refused.
    });
    return;
  }
  world_.post(arrival, leg.worker, [ask](SimWorker& worker) { worker.on_leg(ask); });
}

void SimRouter::apply(const router::CancelLeg& effect) {
  const auto found = legs_.find(effect.leg);
  world_.invariants().expect(found != legs_.end(),
                             "only a leg that runs is cancelled:", effect.leg.request);
  if (found != legs_.end()) {
    close_at_worker(effect.leg, found->second);
    legs_.erase(found);
  }
}

void SimRouter::apply(const router::ReleaseOffer& effect) {
  if (learns_addresses()) {
    return;  // Such an engine cannot be told; the lease ends the offer.
  }
  SimChannel connection;
  world_.post(world_.network().arrival(connection), incarnation_of(effect.worker),
              [transfer = effect.transfer](SimWorker& worker) { worker.on_release(transfer); });
}

void SimRouter::close_at_worker(const router::LegId& id, Leg& leg) {
  world_.post(world_.network().arrival(leg.to_worker), leg.worker,
              [id](SimWorker& worker) { worker.on_leg_closed(id); });
}

void SimRouter::apply(const router::Relay& effect) {
  Leg& leg = legs_.at(effect.leg);
  leg.relayed = true;
  if (!passed_.contains(effect.leg.request)) {
    world_.clients().on_status(effect.leg.request, *leg.status);
  }
  for (const TokenChunk& chunk : leg.held) {
    pass_on(effect.leg.request, chunk);
  }
}

void SimRouter::apply(const router::Complete& effect) { world_.clients().on_complete(effect.id); }

void SimRouter::apply(const router::Refuse& effect) {
  world_.clients().on_refused(effect.id, effect.error.status);
}

void SimRouter::apply(const router::Abort& effect) { world_.clients().on_aborted(effect.id); }

void SimRouter::apply(const router::Forget& effect) { world_.clients().on_left(effect.id); }

}  // namespace pdjob::simulation
