#include "router/policies/worker_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

bool same_incarnation(const net::WorkerEntry& a, const net::WorkerEntry& b) {
  return a.name == b.name && a.engine_id == b.engine_id && a.host == b.host && a.port == b.port;
}

// A worker reports its own key: one that would break a request's head is ignored.
std::string key_line_of(const net::WorkerEntry& entry) {
  return is_key(entry.key) ? authorization_line(entry.key) : std::string();
}

Duration backoff(uint32_t failures) {
  constexpr uint32_t kDoublingsMax = 6;  // Enough to pass kBackoffMax.
  const Duration grown = WorkerTable::kBackoffFirst * (1U << std::min(failures - 1, kDoublingsMax));
  return std::min(grown, WorkerTable::kBackoffMax);
}

}  // namespace

const char* to_string(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "healthy";
    case Health::kSuspect:
      return "suspect";
    case Health::kHalfOpen:
      return "half_open";
  }
  return "unknown";
}

bool Worker::serves(Stage stage) const {
  return stage == Stage::kPrefill
             ? entry.role == net::Role::kPrefill
             : entry.role == net::Role::kDecode || entry.role == net::Role::kBoth;
}

bool Worker::serves(std::string_view model) const {
  return model.empty() || entry.model.empty() || entry.model == model || has_adapter(model);
}

bool Worker::has_route(std::string_view path) const {
  return path.empty() || std::ranges::find(entry.routes, path) != entry.routes.end();
}

Health Worker::health(Instant now) const {
  if (failures == 0 && !silent) {
    return Health::kHealthy;
  }
  return silent || now < retry_at || trial ? Health::kSuspect : Health::kHalfOpen;
}

uint32_t Worker::requests() const {
  return std::max(requests_in_flight + promised,
                  reported.requests_running + reported.requests_queued);
}

uint64_t Worker::load() const {
  const uint64_t rows = entry.role == net::Role::kPrefill ? 0 : reported.kv_rows_used;
  return std::max(tokens_in_flight, rows + reported.tokens_queued);
}

std::vector<WorkerId> WorkerTable::replace(const std::vector<net::WorkerEntry>& entries,
                                           const KvStores& stores) {
  std::set<WorkerId> kept;
  std::set<std::string_view> names;
  for (const net::WorkerEntry& entry : entries) {
    const bool worker = entry.role == net::Role::kPrefill || entry.role == net::Role::kDecode ||
                        entry.role == net::Role::kBoth;
    if (!worker || names.size() == limits::kWorkersMax || !names.insert(entry.name).second) {
      continue;
    }
    Worker* const known = find_mutable(entry.name);
    if (known != nullptr && same_incarnation(known->entry, entry)) {
      if (known->entry.adapters != entry.adapters) {
        known->adapters = {entry.adapters.begin(), entry.adapters.end()};
      }
      known->entry = entry;
      known->key_line = key_line_of(entry);
      kept.insert(known->id);
      continue;
    }
    const WorkerId id{++ids_made_};
    Worker& added = workers_[id];
    added.id = id;
    added.entry = entry;
    added.name_hash = name_hash(entry.name);
    added.key_line = key_line_of(entry);
    added.adapters = {entry.adapters.begin(), entry.adapters.end()};
    note_routes(entry);
    kept.insert(id);
  }
  std::vector<WorkerId> gone;
  for (auto row = workers_.begin(); row != workers_.end();) {
    if (kept.contains(row->first)) {
      ++row;
    } else {
      gone.push_back(row->first);
      row = workers_.erase(row);
    }
  }
  for (auto& [id, worker] : workers_) {
    worker.store = worker.is_pdjob() ? stores.near(worker.entry) : WorkerId{};
  }
  index();
  return gone;
}

void WorkerTable::note_routes(const net::WorkerEntry& entry) {
  constexpr size_t kKnownMax = 1024;
  for (const std::string& route : entry.routes) {
    if (routes_known_ < kKnownMax && routes_[route].insert(entry.model).second) {
      routes_known_ += 1;
    }
  }
}

void WorkerTable::index() {
  by_name_.clear();
  by_stage_ = {};
  for (auto& [id, worker] : workers_) {
    by_name_.emplace(worker.entry.name, &worker);
    for (const Stage stage : {Stage::kPrefill, Stage::kDecode}) {
      if (worker.serves(stage)) {
        by_stage_.at(static_cast<size_t>(stage)).push_back(&worker);
      }
    }
  }
  shuffled_ = {};
  for (size_t stage = 0; stage < by_stage_.size(); ++stage) {
    if (by_stage_.at(stage).size() > kAllMax) {  // So that those of one model are not neighbours.
      shuffled_.at(stage) = by_stage_.at(stage);
      std::ranges::sort(shuffled_.at(stage), {},
                        [](const Worker* worker) { return mix(worker->id.value); });
    }
  }
  std::set<std::pair<net::Protocol, std::string_view>> met;
  for (const auto& [id, worker] : workers_) {
    if (worker.serves(Stage::kPrefill) && worker.entry.standing == net::Standing::kServing) {
      met.emplace(worker.entry.protocol, worker.entry.fingerprint);
    }
  }
  for (auto& [id, worker] : workers_) {
    worker.lonely = worker.entry.role == net::Role::kDecode &&
                    std::ranges::none_of(met, [&worker = worker](const auto& prefill) {
                      return prefill.first == worker.entry.protocol &&
                             net::same_kv(prefill.second, worker.entry.fingerprint);
                    });
  }
}

void WorkerTable::set_load(std::string_view name, std::string_view engine_id,
                           const net::WorkerLoad& load) {
  Worker* const worker = find_mutable(name);
  if (worker != nullptr && worker->entry.engine_id == engine_id) {
    worker->reported = load;
  }
}

const Worker* WorkerTable::find(WorkerId id) const {
  const auto row = workers_.find(id);
  return row == workers_.end() ? nullptr : &row->second;
}

Worker* WorkerTable::find_mutable(WorkerId id) {
  const auto row = workers_.find(id);
  return row == workers_.end() ? nullptr : &row->second;
}

const Worker* WorkerTable::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Worker* WorkerTable::find_mutable(std::string_view name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

bool WorkerTable::knows_model(std::string_view model) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& row) { return row.second.serves(model); });
}

bool WorkerTable::knows_route(std::string_view path, std::string_view model) const {
  const auto found = routes_.find(path);
  if (found == routes_.end()) {
    return false;
  }
  const auto& models = found->second;
  return model.empty() || models.contains("") || models.contains(model) ||
         std::ranges::any_of(workers_, [&](const auto& row) {
           return row.second.has_adapter(model) && models.contains(row.second.entry.model);
         });
}

std::vector<const Worker*> WorkerTable::candidates(const Search& search, Instant now) const {
  const auto fits = [&](const Worker& worker) {
    return worker.accepts() && worker.serves(search.model) && worker.has_route(search.route) &&
           !(search.paired && worker.lonely) &&
           (search.partner == nullptr || worker.pairs_with(*search.partner)) &&
           (search.fingerprint == nullptr ||
            net::same_kv(worker.entry.fingerprint, *search.fingerprint)) &&
           std::ranges::find(search.except, worker.id) == search.except.end();
  };
  std::vector<const Worker*> usable;
  std::vector<const Worker*> busy;
  std::vector<const Worker*> suspects;
  const auto stage = static_cast<size_t>(search.stage);
  const bool some = search.some != nullptr && !shuffled_.at(stage).empty();
  const std::vector<const Worker*>& all = some ? shuffled_.at(stage) : by_stage_.at(stage);
  const size_t begin = some ? search.some->below(all.size()) : 0;
  for (size_t i = 0; i < all.size() && !(some && usable.size() == kSome); ++i) {
    const Worker* const worker = all[(begin + i) % all.size()];
    if (fits(*worker)) {
      (worker->health(now) == Health::kSuspect ? suspects
       : now < worker->busy_until              ? busy
                                               : usable)
          .push_back(worker);
    }
  }
  std::vector<const Worker*>& found = !usable.empty() ? usable : !busy.empty() ? busy : suspects;
  if (some) {
    std::ranges::sort(found, {}, &Worker::id);
  }
  return std::move(found);
}

bool WorkerTable::any(Stage stage, std::string_view model) const {
  return std::ranges::any_of(by_stage_.at(static_cast<size_t>(stage)), [&](const Worker* worker) {
    return worker->accepts() && worker->serves(model);
  });
}

void WorkerTable::note_adapter(WorkerId id, const std::string& name, bool has) {
  if (Worker* worker = find_mutable(id)) {
    if (has) {
      worker->adapters.insert(name);
    } else {
      worker->adapters.erase(name);
    }
  }
}

void WorkerTable::begin(WorkerId id, uint64_t tokens, Instant now, bool background) {
  if (Worker* worker = find_mutable(id)) {
    worker->trial = worker->trial || worker->health(now) == Health::kHalfOpen;
    worker->background_in_flight += background ? 1 : 0;
    worker->background_tokens += background ? tokens : 0;
    if (!background || !worker->gives_way()) {
      worker->requests_in_flight += 1;
      worker->tokens_in_flight += tokens;
    }
  }
}

void WorkerTable::end(WorkerId id, uint64_t tokens, bool background) {
  if (Worker* worker = find_mutable(id)) {
    worker->trial = false;
    if (background) {
      PDJOB_CHECK(worker->background_in_flight > 0 && worker->background_tokens >= tokens, id);
      worker->background_in_flight -= 1;
      worker->background_tokens -= tokens;
    }
    if (!background || !worker->gives_way()) {
      PDJOB_CHECK(worker->requests_in_flight > 0 && worker->tokens_in_flight >= tokens, id);
      worker->requests_in_flight -= 1;
      worker->tokens_in_flight -= tokens;
    }
  }
}

void WorkerTable::begin_prompt(WorkerId id, uint64_t tokens) {
  if (Worker* worker = find_mutable(id)) {
    worker->prompts_in_flight += tokens;
  }
}

void WorkerTable::end_prompt(WorkerId id, uint64_t tokens) {
  if (Worker* worker = find_mutable(id)) {
    PDJOB_CHECK(worker->prompts_in_flight >= tokens, id);
    worker->prompts_in_flight -= tokens;
  }
}

void WorkerTable::promise(WorkerId id) {
  if (Worker* worker = find_mutable(id)) {
    worker->promised += 1;
  }
}

void WorkerTable::keep_promise(WorkerId id) {
  if (Worker* worker = find_mutable(id)) {
    PDJOB_CHECK(worker->promised > 0, id);
    worker->promised -= 1;
  }
}

void WorkerTable::begin_trial(WorkerId id) {
  if (Worker* worker = find_mutable(id)) {
    worker->suspects += 1;
  }
}

void WorkerTable::end_trial(WorkerId id) {
  if (Worker* worker = find_mutable(id)) {
    PDJOB_CHECK(worker->suspects > 0, id);
    worker->suspects -= 1;
  }
}

void WorkerTable::set_silent(WorkerId id, bool silent) {
  if (Worker* worker = find_mutable(id)) {
    worker->silent = silent;
  }
}

void WorkerTable::note_pace(WorkerId id, uint64_t tokens, Duration took) {
  if (Worker* worker = find_mutable(id)) {
    worker->pace.note(tokens, took);
  }
}

void WorkerTable::note_address(WorkerId id, const std::string& address) {
  Worker* worker = find_mutable(id);
  if (worker == nullptr || worker->learnt_address == address) {
    return;
  }
  worker->several_addresses = worker->several_addresses || !worker->learnt_address.empty();
  worker->learnt_address = worker->several_addresses ? "" : address;
}

void WorkerTable::forget_address(WorkerId id) {
  if (Worker* worker = find_mutable(id)) {
    worker->learnt_address.clear();
  }
}

bool WorkerTable::note_good(WorkerId id) {
  Worker* worker = find_mutable(id);
  if (worker == nullptr) {
    return false;
  }
  worker->failures = worker->doubts = worker->overloads = 0;
  worker->bad_status = 0;
  worker->busy_until = {};
  worker->trial = false;
  return std::exchange(worker->silent, false);
}

void WorkerTable::note_whole(WorkerId id) {
  if (Worker* worker = find_mutable(id); worker != nullptr && worker->failures == 0) {
    worker->setbacks = 0;
  }
}

bool WorkerTable::note_reachable(WorkerId id) {
  Worker* worker = find_mutable(id);
  if (worker == nullptr || (worker->failures == 0 && !worker->silent)) {
    return false;
  }
  if (worker->bad_status != 0) {
    return std::exchange(worker->silent, false);
  }
  note_good(id);
  return true;
}

bool WorkerTable::note_overloaded(WorkerId id, Instant now) {
  Worker* worker = find_mutable(id);
  if (worker == nullptr) {
    return false;
  }
  const uint32_t before = worker->overloads;
  const Instant until = worker->busy_until;
  const bool was_silent = note_good(id);
  worker->overloads = now < until ? before : before + 1;
  worker->busy_until = now < until ? until : now + std::min(backoff(before + 1), kBusyMax);
  return was_silent;
}

bool WorkerTable::note_failed(WorkerId id, Instant now, int status) {
  forget_address(id);  // Another engine may be in its place.
  Worker* worker = find_mutable(id);
  // Many legs may fail for one cause: only the first failure, or a failed trial, grows the
  // back-off.
  if (worker == nullptr || (worker->failures > 0 && now < worker->retry_at)) {
    return false;
  }
  worker->failures += 1;
  worker->setbacks += 1;
  worker->bad_status = status;
  worker->retry_at = now + backoff(worker->setbacks);
  worker->trial = false;
  return true;
}

bool WorkerTable::note_doubt(WorkerId id, Instant now, int status) {
  Worker* worker = find_mutable(id);
  if (worker == nullptr) {
    return false;
  }
  worker->doubts = std::min(worker->doubts + 1, kDoubtsMax);
  return worker->doubts == kDoubtsMax && note_failed(id, now, status);
}

}  // namespace pdjob::router
