// The nodes of a running job: what each has, what of it the job's processes reserve, and what is
// free; for people and for machines. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/time.h"
#include "launcher/job/job.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

std::string nodes_text(const std::vector<Node>& nodes, const Job& job, Instant now);
// One line of JSON.
std::string nodes_json(const std::string& name, const std::vector<Node>& nodes, const Job& job,
                       Instant now);

}  // namespace pdjob::launcher
