// JobScrape: reads the metrics of a job's processes for Prometheus, each with its key. Every read
// has a deadline and a bound, and nothing waits for it but who asked. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/metrics/merged_metrics.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

struct ScrapedProcess {
  std::string name;  // As in the job: it needs no escape in a label.
  std::string role;
  net::HttpAddress address;
  std::string key;  // Empty: its metrics need none.
};

// What Prometheus' HTTP service discovery reads: the launcher and every process as a target at
// `address`, the launcher's own, where `scheme` is spoken. Pure.
std::string discovery_json(const std::string& job, const std::string& address,
                           const std::string& scheme, const std::vector<ScrapedProcess>& processes);

// The page's own metric: which processes answered. Pure.
std::string scraped_metrics(const std::map<std::string, bool>& answered);

class JobScrape {
 public:
  using Then = std::function<void(Result<std::string>)>;

  // `processes` returns those that can be asked now.
  JobScrape(net::Loop& loop, std::function<std::vector<ScrapedProcess>()> processes);

  // The metrics of all processes as one page, and which of them answered. `own`: the launcher's
  // page, which becomes a part of it. Those who ask while a read is under way share its result.
  // kOverloaded: too many ask.
  void all(const std::string& own, Then then);
  // The page of one process as it is. kInvalidArgument: there is no such process.
  // kUnavailable, kTimeout: it does not answer.
  void one(std::string_view process, Then then);

 private:
  struct Round {
    MergedMetrics merged;
    std::deque<ScrapedProcess> left;
    size_t asking = 0;
    std::map<std::string, bool> answered;
    std::vector<Then> waiting;
  };

  void ask_next();
  void ask(const ScrapedProcess& process, Then then);

  net::Loop& loop_;
  const std::function<std::vector<ScrapedProcess>()> processes_;
  std::unique_ptr<net::HttpClient> client_;
  std::optional<Round> round_;
  size_t singles_ = 0;  // Reads of one() under way.
};

}  // namespace pdjob::launcher
