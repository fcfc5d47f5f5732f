// The KV links of a running job, put together from what its workers say of theirs, for people and
// for machines. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::launcher {

// A process of a job that may have KV links, as the launcher's status names it.
struct LinkedWorker {
  std::string name;
  std::string engine_id;
  std::string url;
  bool serving = false;
};

// From the launcher's status. kCorrupt: not that.
Result<std::vector<LinkedWorker>> linked_workers(const std::string& status_json);

// What a worker answered, or why it did not: /pdjob/links of worker_process.
struct LinksAnswer {
  LinkedWorker worker;
  Result<std::string> body;
};

// A line per pair and end: each counts what it has seen itself.
std::string links_text(const std::vector<LinksAnswer>& answers);
// One line.
std::string links_json(const std::string& job, const std::vector<LinksAnswer>& answers);

}  // namespace pdjob::launcher
