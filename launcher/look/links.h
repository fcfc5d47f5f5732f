// The KV links of a running job, combined from its workers' reports, for people and for machines.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::launcher {

// A process that may have KV links, as the launcher's status names it.
struct LinkedWorker {
  std::string name;
  std::string engine_id;
  std::string url;
  bool serving = false;
  std::string node;  // Empty: unknown.
};

// Reads the launcher's status. kCorrupt: the text is something else.
Result<std::vector<LinkedWorker>> linked_workers(const std::string& status_json);

// A worker's answer on /pdjob/links (worker_process), or the error.
struct LinksAnswer {
  LinkedWorker worker;
  Result<std::string> body;
};

// One line per pair and end, because each end counts what it sees itself.
std::string links_text(const std::vector<LinksAnswer>& answers);
// One line per pair, as its decode worker sees it, for `pdjob top`. At most `pairs_max` lines.
std::string links_brief(const std::vector<LinksAnswer>& answers, size_t pairs_max);
// One line of JSON.
std::string links_json(const std::string& job, const std::vector<LinksAnswer>& answers);

}  // namespace pdjob::launcher
