// Chooses the workers of a request.
#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "router/core/router.h"

namespace pdjob::router {
namespace {

// Seconds per token; 0: no worker's pace is known.
double fastest_of(const std::vector<const Worker*>& workers) {
  double fastest = 0;
  for (const Worker* worker : workers) {
    if (worker->pace.known() && (fastest == 0 || worker->pace.value() < fastest)) {
      fastest = worker->pace.value();
    }
  }
  return fastest;
}

// How many requests in the background a worker gets: enough for all its sequences. An engine of
// another make that lets them wait still does not take a sequence from one that runs, so some must
// stay free: vLLM has 128 and more. One that does not even let them wait gets few.
constexpr uint32_t kBackgroundMax = 128;
constexpr uint32_t kBackgroundByPriorityMax = 64;
constexpr uint32_t kBackgroundBesideMax = 8;

uint32_t background_max(const Worker& worker) {
  return worker.is_pdjob()    ? kBackgroundMax
         : worker.gives_way() ? kBackgroundByPriorityMax
                              : kBackgroundBesideMax;
}

bool has_room_for(const Worker& worker, bool background, uint32_t in_flight_max) {
  if (background && worker.background_in_flight >= background_max(worker)) {
    return false;
  }
  const uint32_t behind = background && worker.gives_way() ? worker.background_in_flight : 0;
  return in_flight_max == 0 || worker.requests_in_flight + worker.promised + behind < in_flight_max;
}

// Work before a request of so many tokens, beyond its own, in tokens of the fastest worker.
uint64_t weighed_load(const Worker& worker, uint64_t tokens, double fastest) {
  const double slowness = worker.pace.slowness(fastest);
  return slowness == 1
             ? worker.load()
             : static_cast<uint64_t>(slowness * static_cast<double>(worker.load() + tokens)) -
                   tokens;
}

}  // namespace

// True if the pinned workers exist and serve the model. If the request names none, both must serve
// the same one.
bool Router::pins_fit(const RequestFacts& facts) const {
  const auto fits = [&](const std::string& pin, Stage stage) {
    const Worker* worker = pin.empty() ? nullptr : table_.find(pin);
    return pin.empty() || (worker != nullptr && worker->serves(stage) &&
                           worker->serves(facts.model) && worker->has_route(facts.route) &&
                           (facts.probes || worker->entry.standing == net::Standing::kServing));
  };
  return fits(facts.pin_prefill, Stage::kPrefill) && fits(facts.pin_decode, Stage::kDecode) &&
         (facts.pin_prefill.empty() || facts.pin_decode.empty() ||
          (table_.find(facts.pin_prefill)->serves(table_.find(facts.pin_decode)->entry.model) &&
           table_.find(facts.pin_prefill)->pairs_with(*table_.find(facts.pin_decode))));
}

// The candidates of a stage. `partner`: the other worker of the pair, if it is chosen already. A
// reply that has begun goes on only where the tokens so far mean the same. `some`: as in Search.
std::vector<const Worker*> Router::workers_for(Stage stage, const Request& request,
                                               const std::string& model, const Worker* partner,
                                               Instant now, Random* some) const {
  WorkerTable::Search search{.stage = stage,
                             .model = model,
                             .route = request.facts.route,
                             .except = request.failed,
                             .partner = partner,
                             .fingerprint = request.begun ? &request.fingerprint : nullptr,
                             .some = some};
  search.paired = stage == Stage::kDecode && request.facts.hands_over;
  std::vector<const Worker*> found = table_.candidates(search, now);
  if (search.paired && found.empty()) {
    search.paired = false;
    found = table_.candidates(search, now);
  }
  return found;
}

// Ignored if the worker would be the only one left: suspicion only orders the choice.
bool Router::is_avoided(Stage stage, const Worker& worker, const Request& request,
                        std::optional<WorkerId> decode, Instant now) const {
  // A request that has failed once is no trial for another worker.
  const bool unsure = worker.overloads > 0 || worker.health(now) == Health::kHalfOpen;
  if (worker.suspects > 0 || worker.stands_still() || (request.attempts_made > 0 && unsure)) {
    return true;
  }
  if (stage == Stage::kPrefill) {
    return decode && (suspicions_.avoided(worker.id, *decode, now) ||
                      std::ranges::count(request.accused_pairs, std::pair(worker.id, *decode)) > 0);
  }
  if (suspicions_.empty()) {
    return false;
  }
  // A decode worker is avoided if all its possible prefill workers are.
  const std::string& model = request.facts.model.empty() ? worker.entry.model : request.facts.model;
  const auto partners = workers_for(Stage::kPrefill, request, model, &worker, now);
  return worker.entry.role == net::Role::kDecode && !partners.empty() &&
         std::ranges::all_of(partners, [&](const Worker* partner) {
           return suspicions_.avoided(partner->id, worker.id, now);
         });
}

// Keeps only candidates on the decode worker's machine. Exception: the least busy one elsewhere has
// fewer tokens waiting, by more than the prompt's tokens; no network is that slow.
void Router::keep_near(WorkerId decode, uint64_t tokens, std::vector<Candidate>& candidates) const {
  const auto least = [](std::span<const Candidate> some) {
    return std::ranges::min(some, {}, &Candidate::load).load;
  };
  const std::string& machine = table_.find(decode)->entry.host;
  std::vector<Candidate> near;
  std::ranges::copy_if(candidates, std::back_inserter(near), [&](const Candidate& candidate) {
    return table_.find(candidate.id)->entry.host == machine;
  });
  if (!near.empty() && least(near) <= least(candidates) + tokens) {
    candidates = std::move(near);
  }
}

Router::Usable Router::usable_for(Stage stage, const Request& request, const std::string& model,
                                  const Worker* partner, std::optional<WorkerId> decode,
                                  Instant now, Random* some) const {
  const uint32_t in_flight_max =
      stage == Stage::kPrefill ? config_.prefill_in_flight : config_.decode_in_flight;
  Usable found;
  const std::vector<const Worker*> workers = workers_for(stage, request, model, partner, now, some);
  const double fastest = config_.measured_load ? fastest_of(workers) : 0;
  const bool alone = request.losses.wants_own_worker(now);
  const std::span<const uint64_t> blocks = request.facts.blocks;
  const uint32_t somewhere = stores_.matched(blocks);
  const bool background = request.facts.background;
  for (const Worker* worker : workers) {
    if (!has_room_for(*worker, background, in_flight_max) ||
        (alone && (worker->suspects > 0 || worker->stands_still()))) {
      found.full = true;
    } else {
      (is_avoided(stage, *worker, request, decode, now) ? found.avoided : found.candidates)
          .push_back({.id = worker->id,
                      .load = weighed_load(*worker, request.facts.tokens(stage), fastest) +
                              (background ? worker->background_tokens : 0),
                      .name_hash = worker->name_hash,
                      .name = worker->entry.name.c_str(),
                      .requests = worker->requests_in_flight +
                                  (background ? worker->background_in_flight : 0),
                      .stored_near = somewhere > 0 ? stores_.matched(blocks, worker->store) : 0,
                      .stored = worker->store.value != 0 ? somewhere : 0});
    }
  }
  return found;
}

Router::Pick Router::pick(Stage stage, const Request& request, const std::string& model,
                          std::optional<WorkerId> decode, Instant now) {
  const std::string& pin =
      stage == Stage::kPrefill ? request.facts.pin_prefill : request.facts.pin_decode;
  const std::string& other_pin =
      stage == Stage::kPrefill ? request.facts.pin_decode : request.facts.pin_prefill;
  const Worker* const partner = decode              ? table_.find(*decode)
                                : other_pin.empty() ? nullptr
                                                    : table_.find(other_pin);
  if (!pin.empty()) {
    const Worker* worker = table_.find(pin);
    const bool fits = worker != nullptr && worker->serves(model) &&
                      (partner == nullptr || worker->pairs_with(*partner));
    return {.worker = fits ? std::optional(Chosen{worker->id}) : std::nullopt};
  }
  const bool near = stage == Stage::kPrefill && decode && config_.pairing == Pairing::kNear;
  Random* const some = near || policy_of(stage).needs_all() ? nullptr : &random_;
  Usable found = usable_for(stage, request, model, partner, decode, now, some);
  if (found.candidates.empty() && some != nullptr && table_.is_large(stage)) {
    found = usable_for(stage, request, model, partner, decode, now, nullptr);
  }
  std::vector<Candidate>& candidates = found.candidates.empty() ? found.avoided : found.candidates;
  if (candidates.empty()) {
    return {.worker = std::nullopt, .full = found.full};
  }
  if (near) {
    keep_near(*decode, request.facts.prompt_tokens, candidates);
  }
  return {.worker = policy_of(stage).choose(request.facts.prompt(), candidates, random_),
          .full = found.full};
}

std::optional<Chosen> Router::spare_prefill(const Request& request, const std::string& model,
                                            const Worker* decode, Instant now) {
  if (config_.bypass_busy_requests == 0 || request.facts.pinned() || request.wants_pair) {
    return std::nullopt;
  }
  std::optional<uint32_t> least;
  if (decode != nullptr) {
    least = decode->requests();
  } else {
    for (const Worker* full : workers_for(Stage::kDecode, request, model, nullptr, now)) {
      least = std::min(least.value_or(UINT32_MAX), full->requests());
    }
  }
  if (!spills(config_, 0, least)) {
    return std::nullopt;
  }
  const auto chosen = pick(Stage::kPrefill, request, model, std::nullopt, now).worker;
  if (!chosen) {
    return std::nullopt;
  }
  const Worker& prefill = *table_.find(chosen->worker);
  return prefill.is_pdjob() && spills(config_, prefill.requests(), least) ? chosen : std::nullopt;
}

// One that only reads prompts, if it has the route: then nothing is to be decoded.
std::optional<Router::ChosenPair> Router::choose_for_route(Request& request,
                                                           const std::string& model, Instant now) {
  bool full = false;
  for (const Stage stage : {Stage::kPrefill, Stage::kDecode}) {
    const bool pinned_elsewhere = stage == Stage::kPrefill && !request.facts.pin_decode.empty();
    const Pick found = pinned_elsewhere ? Pick{} : pick(stage, request, model, std::nullopt, now);
    full = full || found.full;
    if (found.worker) {
      const bool by_prefill = stage == Stage::kPrefill;
      return ChosenPair{
          .decode = *found.worker,
          .prefill = std::nullopt,
          .bypass = by_prefill ? std::optional(BypassReason::kPromptOnly) : std::nullopt};
    }
  }
  request.wants_room = full;
  return std::nullopt;
}

std::optional<Router::ChosenPair> Router::choose(Request& request, Instant now) {
  request.wants_room = false;
  if (waits_for_admission(request) || request.losses.awaits_word(now)) {
    return std::nullopt;
  }
  // Both halves must hold the same model, even if the client named none.
  const Worker* partner =
      request.facts.pin_prefill.empty() ? nullptr : table_.find(request.facts.pin_prefill);
  const std::string& model = partner != nullptr && request.facts.model.empty()
                                 ? partner->entry.model
                                 : request.facts.model;
  if (!request.facts.route.empty()) {
    return choose_for_route(request, model, now);
  }
  // Engines of another make may be prefill workers that take no request alone.
  if (request.facts.prompt_only && !request.facts.pinned() && !request.wants_pair) {
    const auto [alone, full] = pick(Stage::kPrefill, request, model, std::nullopt, now);
    if (alone && table_.find(alone->worker)->is_pdjob()) {
      return ChosenPair{
          .decode = *alone, .prefill = std::nullopt, .bypass = BypassReason::kPromptOnly};
    }
    if (!alone && full) {
      request.wants_room = true;
      return std::nullopt;
    }
  }
  const auto [decode, decode_full] = pick(Stage::kDecode, request, model, std::nullopt, now);
  request.wants_room = decode_full;
  const Worker* const busy = decode ? table_.find(decode->worker) : nullptr;
  if (busy == nullptr || busy->entry.role == net::Role::kDecode) {
    if (const auto spare = spare_prefill(request, model, busy, now)) {
      return ChosenPair{.decode = *spare, .prefill = std::nullopt, .bypass = BypassReason::kBusy};
    }
  }
  if (!decode) {
    return std::nullopt;
  }
  if (busy->entry.role == net::Role::kBoth || !request.facts.hands_over) {
    return ChosenPair{.decode = *decode, .prefill = std::nullopt};
  }
  return choose_prefill(request, *decode, model.empty() ? busy->entry.model : model, now);
}

std::optional<Router::ChosenPair> Router::choose_prefill(Request& request, const Chosen& decode,
                                                         const std::string& model, Instant now) {
  const Worker& worker = *table_.find(decode.worker);
  const uint64_t tokens =
      request.facts.prompt_tokens - std::min(request.facts.prompt_tokens, decode.cached_tokens);
  const bool may_bypass = request.facts.pin_prefill.empty() && !worker.needs_prefill();
  if (may_bypass) {
    if (const auto reason = bypasses_always(config_, tokens, worker.entry.shares_cores)) {
      return ChosenPair{.decode = decode, .prefill = std::nullopt, .bypass = reason};
    }
  }
  const auto [prefill, prefill_full] = pick(Stage::kPrefill, request, model, decode.worker, now);
  if (may_bypass && (prefill || prefill_full)) {
    BypassFacts facts{.tokens = tokens, .decode_before = worker.prompts()};
    if (prefill) {
      facts.prefill_before = table_.find(prefill->worker)->load();
    }
    if (const auto reason = bypass(config_, facts)) {
      return ChosenPair{.decode = decode, .prefill = std::nullopt, .bypass = reason};
    }
  }
  if (prefill) {
    request.wants_room = request.wants_room || prefill_full;
    return ChosenPair{.decode = decode, .prefill = prefill};
  }
  request.wants_room = prefill_full;
  if (prefill_full || config_.fallback == Fallback::kRefuse || worker.needs_prefill() ||
      request.prefill_overloaded) {
    return std::nullopt;
  }
  return ChosenPair{.decode = decode, .prefill = std::nullopt, .degraded = true};
}

}  // namespace pdjob::router
