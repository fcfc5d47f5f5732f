#include "launcher/metrics/job_scrape.h"

#include <algorithm>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "common/metrics.h"

namespace pdjob::launcher {
namespace {

// Prometheus gives up after 10 s unless it is told otherwise.
constexpr Duration kTimeout = std::chrono::seconds(3);
constexpr size_t kPageBytesMax = 2 * limits::kMiB;  // Of one process; a router of 1,000 workers.
constexpr size_t kAllBytesMax = 64 * limits::kMiB;
constexpr size_t kAskingMax = 32;
constexpr size_t kWaitingMax = 64;
constexpr size_t kSinglesMax = 256;

Error too_many() { return {ErrorCode::kOverloaded, "too many read the job's metrics"}; }

void append_target(JsonWriter& json, const std::string& job, const std::string& address,
                   const std::string& scheme, const ScrapedProcess* process) {
  json.begin_object().key("targets").begin_array().string(address).end_array();
  json.key("labels").begin_object();
  json.key("pdjob_job").string(job);
  json.key("process").string(process != nullptr ? process->name : "launcher");
  json.key("role").string(process != nullptr ? process->role : "launcher");
  json.key("__scheme__").string(scheme);
  json.key("__metrics_path__").string(process != nullptr ? "/metrics/process" : "/metrics");
  if (process != nullptr) {
    json.key("__param_name").string(process->name);
  }
  json.end_object().end_object();
}

}  // namespace

std::string discovery_json(const std::string& job, const std::string& address,
                           const std::string& scheme,
                           const std::vector<ScrapedProcess>& processes) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  append_target(json, job, address, scheme, nullptr);
  for (const ScrapedProcess& process : processes) {
    append_target(json, job, address, scheme, &process);
  }
  json.end_array();
  return text;
}

std::string scraped_metrics(const std::map<std::string, bool>& answered) {
  Metrics metrics;
  for (const auto& [process, scraped] : answered) {
    metrics
        .gauge("pdjob_process_scraped",
               "1 if the launcher could read the process's metrics just now. Only on "
               "/metrics/all.",
               {{"process", process}})
        .set(scraped ? 1 : 0);
  }
  return metrics.text();
}

JobScrape::JobScrape(net::Loop& loop, std::function<std::vector<ScrapedProcess>()> processes)
    : loop_(loop), processes_(std::move(processes)), client_(net::HttpClient::create(loop)) {}

void JobScrape::ask(const ScrapedProcess& process, Then then) {
  const std::string key_line = process.key.empty() ? "" : authorization_line(process.key);
  net::HttpCall call;
  call.to = process.address;
  call.header_lines = key_line;
  call.method = "GET";
  call.target = "/metrics";
  call.connect_timeout = call.head_timeout = call.idle_timeout = call.total_timeout = kTimeout;
  net::fetch(
      loop_, *client_, call, kPageBytesMax, [then = std::move(then)](Result<net::HttpReply> reply) {
        if (reply && reply->status != 200) {
          return then(
              Error{ErrorCode::kUnavailable, "it answered " + std::to_string(reply->status)});
        }
        then(reply ? Result<std::string>(std::move(reply->body)) : reply.error());
      });
}

void JobScrape::all(const std::string& own, Then then) {
  if (round_) {
    return round_->waiting.size() < kWaitingMax ? round_->waiting.push_back(std::move(then))
                                                : then(too_many());
  }
  const std::vector<ScrapedProcess> processes = processes_();
  round_.emplace(
      Round{.merged = MergedMetrics(kAllBytesMax), .left = {processes.begin(), processes.end()}});
  round_->merged.add("launcher", own);
  round_->waiting.push_back(std::move(then));
  ask_next();
}

void JobScrape::ask_next() {
  while (round_->asking < kAskingMax && !round_->left.empty()) {
    const ScrapedProcess process = std::move(round_->left.front());
    round_->left.pop_front();
    ++round_->asking;
    ask(process, [this, name = process.name](const Result<std::string>& page) {
      --round_->asking;
      if (page) {
        round_->merged.add(name, *page);
      }
      round_->answered[name] = page.has_value();
      ask_next();
    });
  }
  if (round_->asking > 0) {
    return;
  }
  const Round done = std::move(*round_);
  round_.reset();
  const std::string text = done.merged.text() + scraped_metrics(done.answered);
  for (const Then& then : done.waiting) {
    then(text);
  }
}

void JobScrape::one(std::string_view process, Then then) {
  const std::vector<ScrapedProcess> processes = processes_();
  const auto found = std::ranges::find(processes, process, &ScrapedProcess::name);
  if (found == processes.end()) {
    return then(Error{ErrorCode::kInvalidArgument, "no process of that name serves"});
  }
  if (singles_ >= kSinglesMax) {
    return then(too_many());
  }
  ++singles_;
  ask(*found, [this, then = std::move(then)](Result<std::string> page) {
    --singles_;
    then(std::move(page));
  });
}

}  // namespace pdjob::launcher
