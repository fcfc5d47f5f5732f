#include "launcher/look/top.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "common/json/json_writer.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kUnknown = "-";

// What a worker did between two looks.
struct Work {
  uint64_t tokens = 0;
  uint64_t busy_us = 0;
  uint64_t ttft_us = 0;
  uint64_t ttft_count = 0;
  uint64_t itl_us = 0;
  uint64_t itl_count = 0;

  Work& operator+=(const Work& other) {
    tokens += other.tokens;
    busy_us += other.busy_us;
    ttft_us += other.ttft_us;
    ttft_count += other.ttft_count;
    itl_us += other.itl_us;
    itl_count += other.itl_count;
    return *this;
  }
};

Work work_between(const net::WorkerLoad& before, const net::WorkerLoad& now) {
  const auto growth = [](uint64_t from, uint64_t to) { return to > from ? to - from : 0; };
  return {.tokens = growth(before.tokens_computed, now.tokens_computed),
          .busy_us = growth(before.busy_us, now.busy_us),
          .ttft_us = growth(before.ttft_sum_us, now.ttft_sum_us),
          .ttft_count = growth(before.ttft_count, now.ttft_count),
          .itl_us = growth(before.itl_sum_us, now.itl_sum_us),
          .itl_count = growth(before.itl_count, now.itl_count)};
}

// "8.1 ms", "1.20 s"
std::string latency_text(double microseconds) {
  char text[32];
  if (microseconds < 1e6) {
    std::snprintf(text, sizeof text, microseconds < 1e5 ? "%.1f ms" : "%.0f ms",
                  microseconds / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.2f s", microseconds / 1e6);
  }
  return text;
}

std::string mean_text(uint64_t sum_us, uint64_t count) {
  return count == 0 ? kUnknown
                    : latency_text(static_cast<double>(sum_us) / static_cast<double>(count));
}

// An engine of another make reports means of its own.
std::string latency_of(uint64_t sum_us, uint64_t count, uint64_t mean_us) {
  return count == 0 && mean_us > 0 ? latency_text(static_cast<double>(mean_us))
                                   : mean_text(sum_us, count);
}

std::string wait_text(uint64_t us) { return mean_text(us, us > 0 ? 1 : 0); }

std::string rate_text(uint64_t count, Duration passed) {
  return std::to_string(std::lround(static_cast<double>(count) / seconds(passed)));
}

std::string percent_text(double share) {
  return std::to_string(std::lround(100 * std::min(share, 1.0))) + "%";
}

std::string state_text(const ProcessLine& process) {
  return process.state + (process.suspected ? " (silent)" : "") +
         (process.spare ? " (spare)" : "") +
         (process.starved                  ? " (starved)"
          : process.load.lending_rests_now ? " (own threads)"
                                           : "");
}

// Requests are counted where they end: at workers that decode.
bool decodes(const ProcessLine& process) {
  return process.role == "decode" || process.role == "both";
}

}  // namespace

std::string Top::look(const StatusPage& status, Instant now) {
  const bool first = looked_at_ == Instant{};
  const Duration passed = std::max<Duration>(now - looked_at_, std::chrono::milliseconds(1));
  std::map<std::string, net::WorkerLoad> loads;
  std::vector<std::vector<std::string>> table = {{"NAME", "ROLE", "STATE", "FOR", "RUNNING",
                                                  "QUEUED", "KV", "BUSY", "TTFT", "ITL", "TOKENS/S",
                                                  "RESTARTS"}};
  Work all;
  uint64_t running = 0;
  uint64_t queued = 0;
  uint64_t background = 0;
  size_t serving = 0;
  std::string starved;
  std::vector<std::vector<std::string>> phases = {{"MEAN WAIT", "QUEUE", "PREFILL", "KV"}};
  for (const ProcessLine& process : status.processes) {
    const net::WorkerLoad& load = process.load;
    const auto known = before_.find(process.engine_id);
    const bool counted = known != before_.end() && process.is_worker() && process.serving();
    const Work work = counted ? work_between(known->second, load) : Work{};
    serving += process.serving() ? 1U : 0U;
    if (decodes(process)) {
      all += work;
      running += load.requests_running;
      queued += load.requests_queued;
      background += load.background_requests;
    }
    const bool shown = process.is_worker() && process.serving();
    const auto of_worker = [shown](std::string text) { return shown ? std::move(text) : kUnknown; };
    table.push_back(
        {process.name, process.role, state_text(process), duration_text(process.in_state),
         of_worker(std::to_string(load.requests_running)),
         of_worker(std::to_string(load.requests_queued)),
         process.serving() && load.kv_rows_max > 0
             ? percent_text(static_cast<double>(load.kv_rows_used) /
                            static_cast<double>(load.kv_rows_max))
             : kUnknown,
         counted ? percent_text(static_cast<double>(work.busy_us) / 1e6 / seconds(passed))
                 : kUnknown,
         of_worker(latency_of(work.ttft_us, work.ttft_count, load.ttft_us)),
         of_worker(latency_of(work.itl_us, work.itl_count, load.itl_us)),
         counted ? rate_text(work.tokens, passed) : kUnknown, std::to_string(process.restarts)});
    if (process.role == "router" || (process.serving() && load.phases != net::PhaseMeans{})) {
      phases.push_back({process.name, wait_text(load.phases.queue_us),
                        wait_text(load.phases.prefill_us), wait_text(load.phases.kv_us)});
    }
    loads[process.engine_id] = load;
    starved += process.starved ? starved_text(process.name, process.starved_share) + "\n" : "";
  }
  before_ = std::move(loads);
  looked_at_ = now;
  return "job " + status.job + ": " + status.state + ", " + status.url + "\n" +
         std::to_string(serving) + " of " + std::to_string(status.processes.size()) +
         " processes serve; requests: " + std::to_string(running) + " running, " +
         std::to_string(queued) + " queued" +
         (background == 0 ? "" : ", " + std::to_string(background) + " in the background") +
         "; TTFT " + mean_text(all.ttft_us, all.ttft_count) + ", ITL " +
         mean_text(all.itl_us, all.itl_count) + ", " +
         (first ? kUnknown : rate_text(all.ttft_count + all.itl_count, passed)) +
         " tokens/s out\n\n" + format_table(table) + starved +
         (phases.size() > 1 ? "\n" + format_table(phases) : "");
}

std::string jobs_text(const std::vector<StatusPage>& jobs) {
  if (jobs.empty()) {
    return "no job runs here\n";
  }
  std::vector<std::vector<std::string>> table = {
      {"JOB", "STATE", "PREFILL", "DECODE", "BOTH", "ROUTERS", "RUNNING", "LAUNCHER", "URL"}};
  for (const StatusPage& job : jobs) {
    const auto count = [&job](std::string_view role) -> std::string {
      size_t serving = 0;
      size_t all = 0;
      for (const ProcessLine& process : job.processes) {
        all += process.role == role ? 1U : 0U;
        serving += process.role == role && process.serving() ? 1U : 0U;
      }
      return all == 0 ? kUnknown : std::to_string(serving) + "/" + std::to_string(all);
    };
    uint64_t running = 0;
    for (const ProcessLine& process : job.processes) {
      running += decodes(process) ? process.load.requests_running : 0;
    }
    table.push_back({job.job, job.state, count("prefill"), count("decode"), count("both"),
                     count("router"), std::to_string(running),
                     job.launcher_pid == 0 ? kUnknown : "pid " + std::to_string(job.launcher_pid),
                     job.url.empty() ? kUnknown : job.url});
  }
  return format_table(table);
}

std::string jobs_json(const std::vector<StatusPage>& jobs) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (const StatusPage& job : jobs) {
    json.begin_object();
    json.key("job").string(job.job);
    json.key("state").string(job.state);
    json.key("url").string(job.url);
    json.key("launcher_pid").integer(job.launcher_pid);
    json.key("processes").begin_array();
    for (const ProcessLine& process : job.processes) {
      json.begin_object();
      json.key("name").string(process.name);
      json.key("role").string(process.role);
      json.key("state").string(process.state);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  return text + "\n";
}

}  // namespace pdjob::launcher
