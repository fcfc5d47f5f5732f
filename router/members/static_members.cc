#include "router/members/static_members.h"

#include <algorithm>
#include <utility>

#include "openai/replies/model_list.h"
#include "router/core/kv_words.h"
#include "router/members/engine_routes.h"
#include "router/members/worker_description.h"

namespace pdjob::router {
namespace {

using Answered = StaticMembers::Answered;

std::string_view path_of(StaticMembers::Question question) {
  switch (question) {
    case StaticMembers::Question::kDescription:
      return "/pdjob/worker";
    case StaticMembers::Question::kHealth:
      return "/health";
    case StaticMembers::Question::kModels:
      return "/v1/models";
    case StaticMembers::Question::kEngines:
      return "/query";
  }
  return "";
}

// SGLang takes a model without a colon for its base model.
constexpr std::string_view kSglangNaming = "{model}:{adapter}";

bool is_ok(const Answered& answer) { return answer.status >= 200 && answer.status < 300; }

bool is_there(const Answered& answer) {
  return answer.how == Answered::How::kReply || answer.how == Answered::How::kSilence;
}

net::HttpAddress bootstrap_of(const StaticWorker& worker) {
  return {worker.address.host, worker.bootstrap_port};
}

}  // namespace

StaticMembers::StaticMembers(const std::vector<StaticWorker>& workers, std::string key,
                             const RouterConfig& config)
    : key_(std::move(key)), protocol_(config.protocol), routes_(config.engine_routes) {
  for (const StaticWorker& worker : workers) {
    rows_.push_back({.given = worker});
    if (worker.bootstrap_port == 0) {
      rows_.back().given.bootstrap_port = config.bootstrap_port;
    }
  }
}

void StaticMembers::step(const Event& event, Instant now, std::vector<Effect>& effects) {
  Turn turn{now, effects};
  std::visit([&](const auto& one) { on(one, turn); }, event);
}

Instant StaticMembers::next_wakeup() const {
  Instant next = kNever;
  for (const Watched& row : rows_) {
    next = std::min(next, row.next_poll);
  }
  return next;
}

void StaticMembers::on(const TimePassed& /*event*/, Turn& turn) {
  for (Watched& row : rows_) {
    if (row.next_poll <= turn.now) {
      ask(row, may_describe_itself(row) ? Question::kDescription : Question::kHealth, turn);
    }
  }
}

void StaticMembers::on(const Answered& answer, Turn& turn) {
  Watched& row = rows_.at(answer.worker);
  switch (answer.question) {
    case Question::kDescription:
      return on_description(row, answer, turn);
    case Question::kHealth:
      return on_health(row, answer, turn);
    case Question::kModels:
      return on_models(row, answer, turn);
    case Question::kEngines:
      return on_engines(row, answer, turn);
  }
}

// After a silence, a foreign engine is asked again for a description: another worker may have its
// address now.
bool StaticMembers::may_describe_itself(const Watched& row) const {
  return !row.foreign && (protocol_ == Protocol::kAuto || protocol_ == Protocol::kPdjob);
}

void StaticMembers::ask(Watched& row, Question question, Turn& turn) {
  row.next_poll = kNever;
  turn.emit(
      Ask{.worker = static_cast<size_t>(&row - rows_.data()),
          .question = question,
          .address = question == Question::kEngines ? bootstrap_of(row.given) : row.given.address,
          .path = path_of(question)});
}

void StaticMembers::on_description(Watched& row, const Answered& answer, Turn& turn) {
  // A description that is too long comes from another program.
  if (answer.how != Answered::How::kReply && answer.how != Answered::How::kGarbage) {
    unwell(row, is_there(answer), turn);
    return;
  }
  if (answer.status == 401 && answer.body.find("pdjob worker") != std::string::npos) {
    refuse(row, "it wants a key: start this router with --worker-key-file", turn);
    return;
  }
  auto description = is_ok(answer) ? parse_worker_description(answer.body)
                                   : Error{ErrorCode::kUnsupported, "no pdjob worker"};
  if (!description && protocol_ == Protocol::kPdjob) {
    refuse(row, "it is no pdjob worker, and router.protocol asks for one", turn);
    return;
  }
  if (!description) {
    row.foreign = true;
    ask(row, Question::kHealth, turn);
    return;
  }
  if (description->draining) {
    leave(row, turn);
    row.next_poll = turn.now + kPollInterval;
    return;
  }
  found(row, std::move(description->entry), turn);
  tell(LoadChanged{row.entry->name, row.entry->engine_id, description->load}, turn);
}

void StaticMembers::on_health(Watched& row, const Answered& answer, Turn& turn) {
  const bool has_no_such_path = answer.status == 404 || answer.status == 405;
  if (!has_no_such_path && !is_ok(answer)) {
    row.foreign = false;
    unwell(row, is_there(answer), turn);
  } else if (!has_no_such_path && row.entry && !row.entry->model.empty() &&
             turn.now < row.next_models) {
    meet(row, *row.entry, turn);
  } else {
    ask(row, Question::kModels, turn);
  }
}

// Without an answer that it can use (some engines want a key), the worker serves any model, or what
// it served before.
void StaticMembers::on_models(Watched& row, const Answered& answer, Turn& turn) {
  if (answer.how != Answered::How::kReply) {
    row.foreign = false;
    unwell(row, is_there(answer), turn);
    return;
  }
  row.next_models = turn.now + kModelsInterval;
  if (!is_ok(answer) && row.entry && !row.entry->model.empty()) {
    meet(row, *row.entry, turn);
    return;
  }
  openai::ListedModels listed;
  if (is_ok(answer)) {
    listed = openai::parse_model_list(
        answer.body, protocol_ == Protocol::kSglang ? kSglangNaming : std::string_view());
  }
  meet(row,
       {.name = row.given.address.to_string(),
        .model = listed.id,
        .context_max = listed.context_max,
        .created = row.entry && row.entry->model == listed.id ? row.entry->created : listed.created,
        .adapters = std::move(listed.adapters)},
       turn);
}

void StaticMembers::meet(Watched& row, net::WorkerEntry entry, Turn& turn) {
  const bool prefills = row.given.role == net::Role::kPrefill;
  entry.protocol = protocol_ == Protocol::kAuto ? Protocol::kNixl : protocol_;
  entry.adapter_name = protocol_ == Protocol::kSglang ? kSglangNaming : "";
  entry.routes = routes_.empty() ? engine_routes(entry.protocol, row.given.role) : routes_;
  if (prefills && protocol_ == Protocol::kMooncake) {
    row.met = std::move(entry);
    ask(row, Question::kEngines, turn);  // Each time, because a restarted engine has a new id.
    return;
  }
  if (prefills && protocol_ == Protocol::kSglang) {
    const net::HttpAddress bootstrap = bootstrap_of(row.given);
    entry.kv_address = bootstrap_address(bootstrap.host, bootstrap.port);
  }
  found(row, std::move(entry), turn);
}

void StaticMembers::on_engines(Watched& row, const Answered& answer, Turn& turn) {
  const std::string server = bootstrap_of(row.given).to_string();
  row.met.kv_address = is_ok(answer) ? mooncake_address(server, answer.body) : "";
  if (row.met.kv_address.empty()) {
    refuse(row, "its bootstrap server " + server + " names no engine", turn);
  } else {
    found(row, row.met, turn);
  }
}

void StaticMembers::found(Watched& row, net::WorkerEntry entry, Turn& turn) {
  entry.name = unique_name(row, entry.name);
  entry.role = row.given.role;
  entry.host = row.given.address.host;
  entry.port = row.given.address.port;
  entry.key = key_;
  row.silences = 0;
  row.next_poll = turn.now + kPollInterval;
  somebody_answered_ = true;
  if (row.entry != entry) {
    const bool lists_others = row.entry && row.entry->adapters != entry.adapters;
    turn.emit(
        Note{.is_warning = false,
             .text = "worker " + entry.name + " (" + net::to_string(entry.role) + ") at " +
                     row.given.address.to_string() +
                     (lists_others  ? " has " + std::to_string(entry.adapters.size()) + " adapters"
                      : row.foreign ? " is a foreign engine"
                                    : " is here")});
    row.entry = std::move(entry);
    if (!lists_others) {
      warn_of_pairs(*row.entry, turn);
    }
    tell_members(turn);
  }
  tell(WorkerProbed{row.entry->name, true}, turn);
}

void StaticMembers::warn_of_pairs(const net::WorkerEntry& joined, Turn& turn) {
  for (const Watched& row : rows_) {
    const bool pair = row.entry && row.entry->role != joined.role;
    if (!pair || (joined.role != net::Role::kPrefill && joined.role != net::Role::kDecode)) {
      continue;
    }
    const bool prefills = joined.role == net::Role::kPrefill;
    const net::WorkerEntry& prefill = prefills ? joined : *row.entry;
    const net::WorkerEntry& decode = prefills ? *row.entry : joined;
    if (const std::string why = why_no_hand_over(prefill, decode); !why.empty()) {
      warn("no KV can go from " + prefill.name + " to " + decode.name + ", so " + decode.name +
               " computes prompts again: " + why,
           turn);
    }
  }
}

void StaticMembers::refuse(Watched& row, const std::string& why, Turn& turn) {
  if (!std::exchange(row.warned, true)) {
    warn(row.given.address.to_string() + " is of no use: " + why, turn);
  }
  unwell(row, /*is_there=*/false, turn);
}

void StaticMembers::unwell(Watched& row, bool is_there, Turn& turn) {
  row.next_poll = turn.now + kPollInterval;
  if (!row.entry) {
    note_silence(row, turn);
    return;
  }
  row.silences += 1;
  const bool for_long = row.silences >= kSilencesMax;
  tell(WorkerProbed{.name = row.entry->name, .reachable = false, .silent = is_there && for_long},
       turn);
  if (for_long && !is_there) {
    leave(row, turn);
  } else if (row.silences == kSilencesMax) {
    warn("worker " + row.entry->name +
             " does not answer its health checks: it gets no new requests until it does",
         turn);
  }
}

void StaticMembers::note_silence(Watched& row, Turn& turn) {
  if (!std::exchange(row.warned, true)) {
    warn(
        "no worker answers at " + row.given.address.to_string() + ": it gets requests once it does",
        turn);
  }
  if (!somebody_answered_ && std::ranges::all_of(rows_, &Watched::warned)) {
    tell(NobodyThere{"no worker has answered yet, of " + std::to_string(rows_.size()) +
                     " that this router was given, first " +
                     rows_.front().given.address.to_string()},
         turn);
  }
}

void StaticMembers::leave(Watched& row, Turn& turn) {
  if (row.entry) {
    warn("worker " + row.entry->name + " is gone", turn);
    row.entry.reset();
    turn.emit(Left{row.given.address});
    tell_members(turn);
  }
}

void StaticMembers::tell_members(Turn& turn) {
  std::vector<net::WorkerEntry> members;
  for (const Watched& row : rows_) {
    if (row.entry) {
      members.push_back(*row.entry);
    }
  }
  tell(WorkersChanged{std::move(members)}, turn);
}

// Workers started by hand may all have the same name.
std::string StaticMembers::unique_name(const Watched& row, const std::string& name) const {
  for (const Watched& other : rows_) {
    if (&other != &row && other.entry && other.entry->name == name) {
      return row.given.address.to_string();
    }
  }
  return name;
}

}  // namespace pdjob::router
