#include "launcher/look/plan_command.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "common/config/config_file.h"
#include "common/exit_code.h"
#include "launcher/job_clusters.h"
#include "launcher/job_folder.h"
#include "launcher/job_plan.h"
#include "launcher/look/status_command.h"
#include "launcher/specs/job_specs.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {
namespace {

bool is_remote(const ClusterConfig& cluster) { return cluster.kind != ClusterKind::kLocal; }

bool runs(const JobConfig& config) {
  return JobFolder::find(config.launcher.state_dir, config.name).has_value();
}

// On which nodes the job is planned.
struct Ground {
  std::vector<Node> nodes;
  NodesOfPlan which = NodesOfPlan::kAll;
};

Result<Ground> ask_nodes(const JobConfig& config) {
  net::block_signals();
  net::EventLoop loop;
  PDJOB_TRY(auto nodes,
            nodes_for_plan(loop, config, node_waiting(config, [](const std::string& text) {
                             std::fprintf(stderr, "%s\n", text.c_str());
                           })));
  return Ground{.nodes = std::move(nodes)};
}

Result<Ground> ground_of(const JobConfig& config, const PlanFlags& flags) {
  if (!flags.assume.empty()) {
    PDJOB_TRY(const std::string text, read_config_file(flags.assume));
    PDJOB_TRY(auto nodes, nodes_assumed(config, flags.assume, text));
    return Ground{.nodes = std::move(nodes)};
  }
  if (flags.ask_nodes) {
    return ask_nodes(config);
  }
  if (std::ranges::none_of(config.clusters, is_remote)) {
    return Ground{.nodes = {node_here(config)}};
  }
  if (runs(config)) {
    PDJOB_TRY(const std::string text,
              ask_launcher(config.launcher.state_dir, config.name, "/nodes?as=yaml"));
    PDJOB_TRY(auto nodes, nodes_assumed(config, "the running job", text));
    return Ground{.nodes = std::move(nodes)};
  }
  return Ground{.nodes = {node_here(config)}, .which = NodesOfPlan::kOthersMayCome};
}

// Says which nodes the plan does not know, and which ones a starting job would wait for.
void warn_of_nodes(const JobConfig& config, const Ground& ground, LaunchPlan& plan) {
  if (ground.which == NodesOfPlan::kOthersMayCome) {
    plan.warnings.emplace_back(
        "the nodes of other machines are not known: --ask-nodes asks their agents, and --assume "
        "FILE describes them");
    return;
  }
  for (const ClusterConfig& cluster : config.clusters) {
    const auto there = std::ranges::count(ground.nodes, cluster.name, &Node::cluster);
    if (std::cmp_less(there, cluster.nodes_awaited())) {
      plan.warnings.push_back("the job waits until cluster " + cluster.name + " has " +
                              std::to_string(cluster.nodes_awaited()) + " nodes, and here are " +
                              std::to_string(there));
    }
  }
}

// Says what would keep the job from starting here now: the router's port in use. A plan of other
// machines says nothing about this one.
void look_at_port(const JobConfig& config, const PlanFlags& flags, LaunchPlan& plan) {
  if (!flags.assume.empty()) {
    return;
  }
  if (runs(config)) {
    std::fputs("the job runs now: this is what it would be if it were started again\n", stderr);
    return;
  }
  const PlanRow& router = plan.rows.front();
  if (const auto socket = net::listen_on(router.host, router.port); !socket) {
    plan.warnings.push_back("the job cannot start now: " + socket.error().message);
  }
}

}  // namespace

int show_plan(const JobConfig& config, const PlanFlags& flags) {
  const auto ground = ground_of(config, flags);
  if (!ground) {
    const std::string& message = ground.error().message;
    std::fprintf(stderr, "%s%s%s", message.ends_with('\n') ? "" : "pdjob: ", message.c_str(),
                 message.ends_with('\n') ? "" : "\n");
    return exit_code_of(ground.error());
  }
  Result<LaunchPlan> plan = plan_on(
      config, ground->nodes, flags.ask_nodes ? PlanProbe::kYes : PlanProbe::kNo, ground->which);
  if (!plan) {
    return refuse_job(kExitNotPlaced, plan.error());
  }
  warn_of_nodes(config, *ground, *plan);
  for (const std::string& model : unknown_models(config)) {
    plan->warnings.push_back("the file of model " + model +
                             " is not on this machine: the plan does not count its memory");
  }
  look_at_port(config, flags, *plan);
  const std::string text =
      flags.form == PlanForm::kJson ? plan->to_json(specs_json(specs_of(config))) : plan->to_text();
  std::fputs(text.c_str(), stdout);
  return flags.rule == PlanRule::kStrict && !plan->warnings.empty() ? kExitNotPlaced : kExitOk;
}

}  // namespace pdjob::launcher
