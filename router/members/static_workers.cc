#include "router/members/static_workers.h"

#include <algorithm>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "common/log.h"
#include "router/core/kv_words.h"

namespace pdjob::router {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(2);
constexpr size_t kAnswerBytesMax = 64 * limits::kKiB;

bool is_ok(const Result<net::HttpReply>& reply) {
  return reply && reply->status >= 200 && reply->status < 300;
}

// True for any answer: a description that is too long comes from another program.
bool is_answer(const Result<net::HttpReply>& reply) {
  return reply || reply.error().code == ErrorCode::kCorrupt;
}

bool has_no_such_path(const Result<net::HttpReply>& reply) {
  return reply && (reply->status == 404 || reply->status == 405);
}

}  // namespace

StaticWorkers::StaticWorkers(net::EventLoop& loop, const std::vector<StaticWorker>& workers,
                             const std::string& key, const RouterConfig& config,
                             std::function<void(RouterEvent)> submit)
    : loop_(loop),
      protocol_(config.protocol),
      key_(key),
      key_line_(authorization_line(key)),
      submit_(std::move(submit)),
      client_(net::HttpClient::create(loop)) {
  for (const StaticWorker& worker : workers) {
    rows_.push_back({.asked = worker});
    if (worker.bootstrap_port == 0) {
      rows_.back().asked.bootstrap_port = config.bootstrap_port;
    }
  }
  for (size_t row = 0; row < rows_.size(); ++row) {
    poll(row);
  }
}

StaticWorkers::~StaticWorkers() {
  for (const Row& row : rows_) {
    loop_.cancel(row.timer);
  }
}

// After a silence, a foreign engine is asked again for a description: another worker may have its
// address now.
bool StaticWorkers::may_describe_itself(const Row& row) const {
  return !row.foreign && (protocol_ == Protocol::kAuto || protocol_ == Protocol::kPdjob);
}

void StaticWorkers::poll(size_t row) {
  if (may_describe_itself(rows_[row])) {
    ask(row, "/pdjob/worker", &StaticWorkers::on_description);
  } else {
    ask(row, "/health", &StaticWorkers::on_health);
  }
}

void StaticWorkers::get(const net::HttpAddress& from, std::string_view target, Then then) {
  net::fetch(loop_, *client_,
             {.to = from,
              .method = "GET",
              .target = target,
              .header_lines = key_line_,
              .connect_timeout = kAnswerTimeout,
              .head_timeout = kAnswerTimeout,
              .idle_timeout = kAnswerTimeout},
             kAnswerBytesMax, std::move(then));
}

void StaticWorkers::ask(size_t row, std::string_view target,
                        void (StaticWorkers::*then)(size_t, const Result<net::HttpReply>&)) {
  get(rows_[row].asked.address, target,
      [this, row, then](const Result<net::HttpReply>& reply) { (this->*then)(row, reply); });
}

bool StaticWorkers::is_there(const Result<net::HttpReply>& reply) const {
  return reply || (reply.error().code == ErrorCode::kTimeout && client_->reached());
}

void StaticWorkers::on_description(size_t row, const Result<net::HttpReply>& reply) {
  if (!is_answer(reply)) {
    unwell(row, is_there(reply));
    return;
  }
  if (reply && reply->status == 401 && reply->body.find("pdjob worker") != std::string::npos) {
    refuse(row, "it wants a key: start this router with --worker-key-file");
    return;
  }
  auto description = is_ok(reply) ? parse_worker_description(reply->body)
                                  : Error{ErrorCode::kUnsupported, "no pdjob worker"};
  if (!description && protocol_ == Protocol::kPdjob) {
    refuse(row, "it is no pdjob worker, and router.protocol asks for one");
    return;
  }
  if (!description) {
    rows_[row].foreign = true;
    ask(row, "/health", &StaticWorkers::on_health);
    return;
  }
  if (description->draining) {
    leave(row);
    poll_later(row);
    return;
  }
  const net::WorkerLoad load = description->load;
  found(row, std::move(description->entry));
  submit_(LoadChanged{rows_[row].entry->name, rows_[row].entry->engine_id, load});
}

void StaticWorkers::on_health(size_t row, const Result<net::HttpReply>& reply) {
  const bool is_asked_elsewhere = has_no_such_path(reply);
  if (!is_asked_elsewhere && !is_ok(reply)) {
    rows_[row].foreign = false;
    unwell(row, is_there(reply));
  } else if (!is_asked_elsewhere && rows_[row].entry && !rows_[row].entry->model.empty()) {
    meet(row, *rows_[row].entry);
  } else {
    ask(row, "/v1/models", &StaticWorkers::on_models);
  }
}

// Without an answer (some engines want a key), the worker serves any model.
void StaticWorkers::on_models(size_t row, const Result<net::HttpReply>& reply) {
  if (!reply) {
    rows_[row].foreign = false;
    unwell(row, is_there(reply));
    return;
  }
  meet(row, {.name = rows_[row].asked.address.to_string(),
             .model = is_ok(reply) ? only_model(reply->body) : ""});
}

void StaticWorkers::meet(size_t row, net::WorkerEntry entry) {
  const StaticWorker& asked = rows_[row].asked;
  const bool prefills = asked.role == net::Role::kPrefill;
  entry.protocol = protocol_ == Protocol::kAuto ? Protocol::kNixl : protocol_;
  const net::HttpAddress bootstrap{asked.address.host, asked.bootstrap_port};
  if (prefills && protocol_ == Protocol::kMooncake) {
    // Asked each time, because a restarted engine has a new id.
    get(bootstrap, "/query",
        [this, row, entry = std::move(entry)](const Result<net::HttpReply>& reply) {
          on_query(row, entry, reply);
        });
    return;
  }
  if (prefills && protocol_ == Protocol::kSglang) {
    entry.kv_address = bootstrap_address(bootstrap.host, bootstrap.port);
  }
  found(row, std::move(entry));
}

void StaticWorkers::on_query(size_t row, net::WorkerEntry entry,
                             const Result<net::HttpReply>& reply) {
  const StaticWorker& asked = rows_[row].asked;
  const std::string server = net::HttpAddress{asked.address.host, asked.bootstrap_port}.to_string();
  entry.kv_address = is_ok(reply) ? mooncake_address(server, reply->body) : "";
  if (entry.kv_address.empty()) {
    refuse(row, "its bootstrap server " + server + " names no engine");
  } else {
    found(row, std::move(entry));
  }
}

void StaticWorkers::found(size_t row, net::WorkerEntry entry) {
  Row& known = rows_[row];
  entry.name = unique_name(row, entry.name);
  entry.role = known.asked.role;
  entry.host = known.asked.address.host;
  entry.port = known.asked.address.port;
  entry.key = key_;
  known.silences = 0;
  somebody_answered_ = true;
  if (known.entry != entry) {
    log::info("worker " + entry.name + " (" + net::to_string(entry.role) + ") at " +
              known.asked.address.to_string() +
              (known.foreign ? " is a foreign engine" : " is here"));
    known.entry = std::move(entry);
    warn_of_pairs(*known.entry);
    submit_members();
  }
  submit_(WorkerProbed{known.entry->name, true});
  poll_later(row);
}

void StaticWorkers::warn_of_pairs(const net::WorkerEntry& joined) const {
  for (const Row& row : rows_) {
    const bool pair = row.entry && row.entry->role != joined.role;
    if (!pair || (joined.role != net::Role::kPrefill && joined.role != net::Role::kDecode)) {
      continue;
    }
    const bool prefills = joined.role == net::Role::kPrefill;
    const net::WorkerEntry& prefill = prefills ? joined : *row.entry;
    const net::WorkerEntry& decode = prefills ? *row.entry : joined;
    if (const std::string why = why_no_hand_over(prefill, decode); !why.empty()) {
      log::warn("no KV can go from " + prefill.name + " to " + decode.name + ", so " + decode.name +
                " computes prompts again: " + why);
    }
  }
}

void StaticWorkers::refuse(size_t row, const std::string& why) {
  if (!std::exchange(rows_[row].warned, true)) {
    log::warn(rows_[row].asked.address.to_string() + " is of no use: " + why);
  }
  unwell(row, /*is_there=*/false);
}

void StaticWorkers::unwell(size_t row, bool is_there) {
  Row& known = rows_[row];
  if (known.entry) {
    known.silences += 1;
    const bool for_long = known.silences >= kSilencesMax;
    submit_(WorkerProbed{
        .name = known.entry->name, .reachable = false, .silent = is_there && for_long});
    if (for_long && !is_there) {
      leave(row);
    } else if (known.silences == kSilencesMax) {
      log::warn("worker " + known.entry->name +
                " does not answer its health checks: it gets no new requests until it does");
    }
  } else {
    note_silence(row);
  }
  poll_later(row);
}

// For a row without a worker.
void StaticWorkers::note_silence(size_t row) {
  Row& known = rows_[row];
  if (!std::exchange(known.warned, true)) {
    log::warn("no worker answers at " + known.asked.address.to_string() +
              ": it gets requests once it does");
  }
  if (!somebody_answered_ && std::ranges::all_of(rows_, &Row::warned)) {
    submit_(NobodyThere{"no worker has answered yet, of " + std::to_string(rows_.size()) +
                        " that this router was given, first " +
                        rows_.front().asked.address.to_string()});
  }
}

void StaticWorkers::leave(size_t row) {
  if (rows_[row].entry) {
    log::warn("worker " + rows_[row].entry->name + " is gone");
    rows_[row].entry.reset();
    client_->forget(rows_[row].asked.address);
    submit_members();
  }
}

void StaticWorkers::poll_later(size_t row) {
  rows_[row].timer = loop_.call_at(loop_.now() + kPollInterval, [this, row] { poll(row); });
}

void StaticWorkers::submit_members() {
  std::vector<net::WorkerEntry> members;
  for (const Row& row : rows_) {
    if (row.entry) {
      members.push_back(*row.entry);
    }
  }
  submit_(WorkersChanged{std::move(members)});
}

// Workers started by hand may all have the same name.
std::string StaticWorkers::unique_name(size_t row, const std::string& name) const {
  for (size_t other = 0; other < rows_.size(); ++other) {
    if (other != row && rows_[other].entry && rows_[other].entry->name == name) {
      return rows_[row].asked.address.to_string();
    }
  }
  return name;
}

}  // namespace pdjob::router
