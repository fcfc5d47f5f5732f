// `pdjob plan`: what a job would run, and where.
#pragma once

#include <string>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

enum class PlanForm { kText, kJson };
enum class PlanRule {
  kTell,    // Warnings are only shown.
  kStrict,  // With one, the exit code is kExitNotPlaced.
};
struct PlanFlags {
  PlanForm form = PlanForm::kText;
  PlanRule rule = PlanRule::kTell;
  std::string assume;      // A file of nodes, in place of those that are there.
  bool ask_nodes = false;  // As a starting job would: it waits for nodes that are away, and
                           // runs what the job file names.
};
// Prints the plan on stdout; returns the exit code. Without `ask_nodes` it asks no other machine,
// and takes no address of agents. The nodes are those of `assume`; those of the job if it runs; or
// this machine, and workers of other machines have no place yet.
int show_plan(const JobConfig& config, const PlanFlags& flags);

}  // namespace pdjob::launcher
