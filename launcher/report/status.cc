#include "launcher/report/status.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "common/json/json_writer.h"
#include "common/metrics.h"
#include "launcher/view/table.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

std::string url_of(const Process& process, const LaunchPlan& plan) {
  const auto row = std::ranges::find(plan.rows, process.name, &PlanRow::name);
  // The planned port of an engine of another make may be in use.
  const bool planned = row != plan.rows.end() && row->command.empty();
  const net::WorkerEntry& entry = process.entry;
  const uint16_t port = entry.port != 0 ? entry.port : planned ? row->port : uint16_t{0};
  const std::string& host = planned && entry.host.empty() ? row->host : entry.host;
  return port == 0 ? "-" : "http://" + net::HttpAddress{.host = host, .port = port}.to_string();
}

bool is_starved(const Process& process) { return process.alive() && process.starvation.starved(); }

std::string state_text(const Process& process, double slowness) {
  constexpr double kWorthSaying = 1.5;
  char slow[32] = "";
  if (slowness >= kWorthSaying) {
    std::snprintf(slow, sizeof slow, " (%.1f x slower)", slowness);
  }
  return std::string(to_string(process.state)) + (process.suspected ? " (silent)" : "") +
         (process.stands_by() ? " (spare)" : "") + (is_starved(process) ? " (starved)" : "") + slow;
}

std::string load_text(const Process& process) {
  if (!process.serving()) {
    return "-";
  }
  const net::WorkerLoad& load = process.load;
  const std::string kv =
      load.kv_rows_max == 0
          ? ""
          : "KV " + std::to_string(100 * load.kv_rows_used / load.kv_rows_max) + "%";
  if (process.is_store()) {
    return kv.empty() ? "-" : kv;
  }
  return std::to_string(load.requests_running) + " running, " +
         std::to_string(load.requests_queued) + " queued" +
         (load.background_requests == 0
              ? ""
              : ", " + std::to_string(load.background_requests) + " in the background") +
         (kv.empty() ? "" : ", " + kv);
}

// Why a process is not there, as far as is known; empty: it is, or comes.
std::string why_absent(const Process& process, const Job& job, Instant now) {
  if (process.state == ProcessState::kWaiting && process.fate == Fate::kRestart) {
    const std::string lack = job.lack(process.demand);
    return lack.empty() ? "" : "waits for a node with room: " + lack;
  }
  if (process.state != ProcessState::kBackoff) {
    return "";
  }
  const Duration left = process.deadline == kNever ? Duration::zero() : process.deadline - now;
  return "died: " + process.last_exit + "; it is tried again" +
         (left >= std::chrono::seconds(1) ? " in " + duration_text(left) : "");
}

// Routers tell it of workers.
std::vector<net::WorkerTrouble> troubles(const Job& job) {
  std::vector<net::WorkerTrouble> all;
  for (const Process& process : job.processes()) {
    for (net::WorkerTrouble each : process.troubles) {
      each.lasts = false;  // Routers may differ in that.
      if (process.serving() && std::ranges::find(all, each) == all.end()) {
        all.push_back(std::move(each));
      }
    }
  }
  return all;
}

// What somebody should look at, a line each. Processes with the same reason share one.
std::string remarks(const JobView& view) {
  std::vector<std::pair<std::string, std::vector<std::string>>> absent;
  std::string text;
  if (view.job.state() == JobState::kReady && !serves(view.job)) {
    text += "no usable pair of workers: no request can be served now\n";
  }
  for (const Process& process : view.job.processes()) {
    if (is_starved(process)) {
      text += starved_text(process.name, process.starvation.share()) + "\n";
    }
    const std::string why = why_absent(process, view.job, view.now);
    const auto known = std::ranges::find(absent, why, [](const auto& one) { return one.first; });
    if (!why.empty()) {
      (known == absent.end() ? absent.emplace_back(why, std::vector<std::string>()) : *known)
          .second.push_back(process.name);
    }
  }
  for (const auto& [why, names] : absent) {
    text += names_text(names) + (names.size() == 1 ? " " : ": each ") + why + "\n";
  }
  for (const net::WorkerTrouble& each : troubles(view.job)) {
    text += "requests avoid " + each.worker +
            (each.partner.empty() ? "" : " with " + each.partner) + ": " + each.why + "\n";
  }
  return text;
}

void append_process(JsonWriter& json, const Process& process, const JobView& view) {
  json.begin_object();
  json.key("name").string(process.name);
  json.key("role").string(to_string(process.role));
  if (view.plan.several_models() && !process.model.empty()) {
    json.key("model").string(process.model);
  }
  json.key("state").string(to_string(process.state));
  if (const std::string why = why_absent(process, view.job, view.now); !why.empty()) {
    json.key("why").string(why);
  }
  json.key("suspected").boolean(process.suspected);
  json.key("spare").boolean(process.stands_by());
  json.key("pid").integer(process.pid);
  json.key("engine_id").string(process.engine_id);
  json.key("url").string(url_of(process, view.plan));
  if (!process.place.node.empty()) {
    json.key("node").string(process.place.node);
  }
  json.key("restarts").integer(process.restarts);
  json.key("crashes").integer(process.crashes);
  json.key("hangs").integer(process.hangs);
  json.key("replacements").integer(process.replacements);
  json.key("slowness").number(view.slowness(process.name));
  json.key("starved").boolean(is_starved(process));
  json.key("starved_share").number(process.starvation.share());
  json.key("last_exit").string(process.last_exit);
  json.key("seconds_in_state").number(seconds(view.now - process.since));
  json.key("load").begin_object();
  json.key("requests_running").integer(process.load.requests_running);
  json.key("requests_queued").integer(process.load.requests_queued);
  json.key("background_requests").integer(process.load.background_requests);
  json.key("background_tokens").integer(process.load.background_tokens);
  json.key("tokens_queued").integer(process.load.tokens_queued);
  json.key("kv_rows_used").integer(process.load.kv_rows_used);
  json.key("kv_rows_max").integer(process.load.kv_rows_max);
  json.key("standstill_ms").integer(process.load.standstill_ms);
  json.key("tokens_computed").integer(process.load.tokens_computed);
  json.key("busy_us").integer(process.load.busy_us);
  json.key("ttft_sum_us").integer(process.load.ttft_sum_us);
  json.key("ttft_count").integer(process.load.ttft_count);
  json.key("itl_sum_us").integer(process.load.itl_sum_us);
  json.key("itl_count").integer(process.load.itl_count);
  json.key("borrowed_steps").integer(process.load.borrowed_steps);
  json.key("lending_rests").integer(process.load.lending_rests);
  json.key("lending_rests_now").boolean(process.load.lending_rests_now);
  json.key("queue_us").integer(process.load.phases.queue_us);
  json.key("prefill_us").integer(process.load.phases.prefill_us);
  json.key("kv_us").integer(process.load.phases.kv_us);
  if (process.is_foreign()) {
    json.key("patience_ms").integer(process.load.patience_ms);
    json.key("ttft_us").integer(process.load.ttft_us);
    json.key("itl_us").integer(process.load.itl_us);
  }
  json.end_object();
  json.end_object();
}

}  // namespace

// A job without routers is not asked by clients.
bool serves(const Job& job) {
  const auto routers = [&job](auto fits) {
    return std::ranges::any_of(job.processes(), [&](const Process& process) {
      return process.is_router() && fits(process);
    });
  };
  return job.state() == JobState::kReady &&
         (routers([](const Process& router) { return router.serving() && !router.unusable; }) ||
          !routers([](const Process&) { return true; }));
}

std::string job_state_text(const Job& job) {
  return job.state() == JobState::kReady && !serves(job) ? "unavailable" : to_string(job.state());
}

std::string status_text(const JobView& view) {
  std::vector<std::vector<std::string>> table = {
      {"NAME", "ROLE", "STATE", "FOR", "PID", "RESTARTS", "URL", "LOAD"}};
  if (view.plan.several_models()) {
    table.front().insert(table.front().begin() + 1, "MODEL");
  }
  for (const Process& process : view.job.processes()) {
    table.push_back(
        {process.name, to_string(process.role), state_text(process, view.slowness(process.name)),
         duration_text(view.now - process.since),
         process.pid == 0 ? "-" : std::to_string(process.pid), std::to_string(process.restarts),
         url_of(process, view.plan), load_text(process)});
    if (view.plan.several_models()) {
      table.back().insert(table.back().begin() + 1, process.model.empty() ? "-" : process.model);
    }
  }
  return "job " + view.plan.job + ": " + job_state_text(view.job) + ", " + view.url +
         ", launcher pid " + std::to_string(view.launcher_pid) + "\n" + format_table(table) +
         remarks(view);
}

std::string status_json(const JobView& view) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("job").string(view.plan.job);
  json.key("state").string(job_state_text(view.job));
  json.key("url").string(view.url);
  if (view.plan.several_models()) {
    json.key("models").begin_array();
    for (const ModelPlan& model : view.plan.models) {
      json.string(model.name);
    }
    json.end_array();
  } else {
    json.key("model").string(view.plan.models.front().name);
  }
  json.key("launcher_pid").integer(view.launcher_pid);
  json.key("waiting_for")
      .string(view.job.state() == JobState::kStarting ? view.job.waiting_for() : "");
  json.key("processes").begin_array();
  for (const Process& process : view.job.processes()) {
    append_process(json, process, view);
  }
  json.end_array();
  json.key("troubles").begin_array();
  for (const net::WorkerTrouble& each : troubles(view.job)) {
    json.begin_object();
    json.key("worker").string(each.worker);
    json.key("why").string(each.why);
    if (!each.partner.empty()) {
      json.key("partner").string(each.partner);
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

std::string progress_line(const Job& job) {
  const auto count = [&job](ProcessState state) {
    return std::ranges::count(job.processes(), state, &Process::state);
  };
  std::string text = std::to_string(count(ProcessState::kReady)) + " of " +
                     std::to_string(job.processes().size()) + " ready";
  for (const ProcessState state : {ProcessState::kStarting, ProcessState::kRegistered,
                                   ProcessState::kHung, ProcessState::kBackoff}) {
    if (const auto some = count(state); some > 0) {
      text += ", " + std::to_string(some) + " " + to_string(state);
    }
  }
  for (const Process& process : job.processes()) {
    if (process.state == ProcessState::kBackoff) {
      return text + "; " + process.name +
             " died: " + process.last_exit;  // One is enough; `pdjob status` shows all.
    }
  }
  return text;
}

// Made anew each time, because processes come and go.
std::string job_metrics(const JobView& view) {
  const Job& job = view.job;
  Metrics metrics;
  metrics.gauge("pdjob_job_ready", "1 once the job is ready, until it drains.")
      .set(job.state() == JobState::kReady ? 1 : 0);
  for (const Process& process : job.processes()) {
    const Labels labels = {{"name", process.name}, {"role", to_string(process.role)}};
    metrics.gauge("pdjob_process_up", "1 while the process serves and is heard of.", labels)
        .set(process.serving() && !process.suspected ? 1 : 0);
    metrics
        .counter("pdjob_process_restarts_total", "Starts of the process after its first.", labels)
        .add(process.restarts);
    metrics
        .counter("pdjob_process_crashes_total",
                 "Ends of the process by SIGSEGV, SIGABRT and their like, at its own work.", labels)
        .add(process.crashes);
    metrics
        .counter("pdjob_process_hangs_total",
                 "Times that the process had work and made no progress for progress_timeout.",
                 labels)
        .add(process.hangs);
    metrics
        .counter("pdjob_process_replacements_total",
                 "Times that the process was replaced: it was slower than its peers, or went on "
                 "failing with a partner.",
                 labels)
        .add(process.replacements);
    metrics
        .gauge("pdjob_process_slowness",
               "At least so many times as long as most of its group the worker takes for the same "
               "work. 0: unknown.",
               labels)
        .set(view.slowness(process.name));
    metrics
        .gauge("pdjob_process_starved_ratio",
               "The share of the last seconds in which one thread of the process, the one that "
               "waited longest, waited for a core.",
               labels)
        .set(process.alive() ? process.starvation.share() : 0);
  }
  for (const auto& [node, level] : job.trust().levels(view.now)) {
    metrics
        .gauge("pdjob_node_distrust",
               "Above 0 while other nodes are preferred, because processes died or were slow on "
               "this one.",
               {{"node", node}})
        .set(level);
  }
  return metrics.text();
}

}  // namespace pdjob::launcher
