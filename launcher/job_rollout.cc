#include "launcher/job_rollout.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "common/json/json_writer.h"
#include "common/metrics.h"

namespace pdjob::launcher {
namespace {

std::string milliseconds_text(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

std::string exact_seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

JobRollout::JobRollout(net::Loop& loop, JobRunner& runner, Options options)
    : loop_(loop),
      runner_(runner),
      options_(std::move(options)),
      kept_(options_.record),
      core_(options_.timing, runner.job().weights(), options_.record, options_.launcher),
      core_runner_(loop, core_, *this) {}

JobRollout::~JobRollout() { loop_.cancel(next_); }

// The runner is in the middle of a step.
void JobRollout::job_changed(const Event& event) {
  if (const auto* arrived = std::get_if<MessageArrived>(&event)) {
    if (const auto* prepared = std::get_if<net::WeightsPrepared>(&arrived->message)) {
      told_.emplace_back(WorkerPrepared{arrived->peer, *prepared});
    } else if (const auto* applied = std::get_if<net::AdmissionApplied>(&arrived->message)) {
      told_.emplace_back(RouterAnswered{arrived->peer, *applied});
    } else if (const auto* order = std::get_if<net::OrderAsked>(&arrived->message);
               order != nullptr && is_router(arrived->peer)) {
      told_.emplace_back(OrderReceived{{arrived->peer, order->id}, *order});
    }
  }
  look_soon();
}

// Only routers pass orders on.
bool JobRollout::is_router(const std::string& peer) const {
  const Process* const process = runner_.job().find(peer);
  return process != nullptr && process->is_router();
}

void JobRollout::look_soon() {
  loop_.cancel(next_);
  next_ = loop_.call_at(loop_.now(), [this] { carry_on(); });
}

void JobRollout::carry_on() {
  core_runner_.submit(fleet());
  for (; !told_.empty(); told_.pop_front()) {
    core_runner_.submit(std::move(told_.front()));
  }
}

FleetSeen JobRollout::fleet() const {
  FleetSeen seen{.ready = runner_.job().state() == JobState::kReady};
  for (const Process& process : runner_.job().processes()) {
    if (process.is_batch() || process.is_store()) {
      continue;
    }
    if (process.is_router()) {
      if (process.serving()) {
        seen.routers.push_back({.name = process.name, .engine_id = process.engine_id});
      }
      continue;
    }
    if (process.fate != Fate::kEnd) {
      seen.workers.push_back(
          {.name = process.name,
           .engine_id = process.engine_id,
           .role = process.fate == Fate::kChangeRole ? process.next_role : process.role,
           .state = process.state,
           .version = process.entry.weight_version,
           .digest = process.entry.model_digest,
           .last_exit = process.last_exit});
    }
  }
  return seen;
}

void JobRollout::carry_out(const ApplyWeights& effect) {
  runner_.submit(WeightsChosen{.weights = effect.weights, .prepared = effect.prepared});
}

void JobRollout::stepped(const RolloutEvent& /*event*/,
                         const std::vector<RolloutEffect>& /*effects*/) {
  if (kept_ != core_.record()) {
    kept_ = core_.record();
    options_.keep(kept_);
  }
}

void JobRollout::carry_out(const AnswerOrder& effect) {
  if (!effect.to.peer.empty()) {
    runner_.tell(effect.to.peer, effect.answer);
  }
}

std::string JobRollout::json() const {
  const net::OrderAnswered now = core_.report();
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("weight_version").string(now.weights.version);
  json.key("path").string(now.weights.path);
  json.key("digest").string(now.weights.digest);
  json.key("phase").string(core_.phase());
  json.key("paused").boolean(now.paused);
  json.key("mode").string(to_string(now.mode));
  json.key("admission").string(core_.closed() ? "closed" : "open");
  json.key("updates").integer(now.updates);
  json.key("workers").integer(now.workers);
  json.key("serving").integer(now.serving);
  const UpdateParts& parts = core_.last_update();
  json.key("last_update").begin_object();
  json.key("preparing_seconds").raw(exact_seconds(parts.preparing));
  json.key("closing_seconds").raw(exact_seconds(parts.closing));
  json.key("applying_seconds").raw(exact_seconds(parts.applying));
  json.key("bytes").integer(parts.bytes);
  json.end_object();
  json.key("not_serving").begin_array();
  for (const net::WorkerTrouble& trouble : now.troubles) {
    json.begin_object();
    json.key("worker").string(trouble.worker);
    json.key("why").string(trouble.why);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return text;
}

std::string JobRollout::text() const {
  const net::OrderAnswered now = core_.report();
  const UpdateParts& parts = core_.last_update();
  std::string text = "weights " + now.weights.version + " on " + std::to_string(now.serving) +
                     " of " + std::to_string(now.workers) + " workers";
  text += now.weights.path.empty() ? ", of the job file" : ", " + now.weights.path;
  text += now.weights.digest.empty() ? "\n" : "\ndigest " + now.weights.digest + "\n";
  text += std::string("admission ") + (core_.closed() ? "closed" : "open") +
          (now.paused ? std::string(", paused (") + to_string(now.mode) + ")" : "") + ", order " +
          core_.phase() + "\n";
  text += std::to_string(now.updates) + " updates";
  if (parts.applying > Duration::zero()) {
    text += ", the last one: read in " + milliseconds_text(parts.preparing) + " ms, quiet in " +
            milliseconds_text(parts.closing) + " ms, applied in " +
            milliseconds_text(parts.applying) + " ms";
  }
  text += '\n';
  for (const net::WorkerTrouble& trouble : now.troubles) {
    text += trouble.worker + " does not serve: " + trouble.why + "\n";
  }
  return text;
}

std::string rollout_metrics(const Rollout& core) {
  const net::OrderAnswered now = core.report();
  const UpdateParts& parts = core.last_update();
  Metrics metrics;
  metrics.counter("pdjob_weight_updates_total", "Updates of the weights that the fleet took.")
      .add(static_cast<double>(now.updates));
  metrics
      .gauge("pdjob_weight_version_info", "1 for the weights that the fleet serves with.",
             {{"version", now.weights.version}})
      .set(1);
  metrics.gauge("pdjob_admission_closed", "1 while routers admit no new request.")
      .set(core.closed() ? 1 : 0);
  metrics.gauge("pdjob_weight_workers_serving", "Workers that serve with the fleet's weights.")
      .set(now.serving);
  for (const auto& [part, duration] :
       {std::pair("preparing", parts.preparing), std::pair("closing", parts.closing),
        std::pair("applying", parts.applying)}) {
    metrics
        .gauge("pdjob_weight_update_seconds",
               "The parts of the last update: reading the file, waiting for requests, changing "
               "the engines.",
               {{"part", part}})
        .set(std::chrono::duration<double>(duration).count());
  }
  return metrics.text();
}

}  // namespace pdjob::launcher
