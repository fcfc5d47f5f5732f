#include "launcher/played/played_launcher.h"

#include <utility>

#include "launcher/job_start.h"

namespace pdjob::simulation {
namespace {

launcher::JobRunnerOptions options_of(const LaunchedJob& job) {
  launcher::JobLedger ledger{.launcher = 1, .nonce = "played"};
  ledger.root = "played";
  return launcher::runner_options(job.config, job.plan, ledger, /*adopts=*/false, "");
}

launcher::Cluster& with_node(SimCluster& cluster, const launcher::Node& node) {
  cluster.join(node);
  return cluster;
}

}  // namespace

PlayedLauncher::PlayedLauncher(const LaunchedJob& job, World world, uint64_t seed)
    : world_(std::move(world)),
      start_time_(job.start_time),
      random_(seed),
      control_(world_.loop, no_cuts_, random_.next()),
      process_("launcher", {.loop = world_.loop,
                            .seed = random_.next(),
                            .streams = &world_.http,
                            .host = "10.0.0.9"}),
      cluster_(world_.loop, machines_, random_.next(),
               [this](Instant when, SimLoop::Task task) { world_.loop.at(when, std::move(task)); }),
      runner_(process_, with_node(cluster_, job.node), options_of(job), *this),
      scaling_(process_, runner_, job.config, job.plan, world_.say) {
  machines_.began = [this](const Order& order) { begin(order); };
  machines_.gone = [this](launcher::Incarnation who) { gone(who); };
  machines_.terminated = [this](launcher::Incarnation who) {
    if (const auto found = members_.find(who); found != members_.end()) {
      found->second->terminate();
    } else {
      end(who);  // It has not begun yet.
    }
  };
  machines_.signs_of = [](launcher::Incarnation /*who*/) { return launcher::VitalSigns{}; };
  machines_.door_changed = [this](const launcher::Door& door, bool open) {
    const std::string name = door.host + ":" + std::to_string(door.port);
    open ? world_.http.hold(name) : world_.http.close_door(name);
  };
  process_.post([this] { runner_.start(control_.serve(process_, runner_, 1)); });
}

PlayedLauncher::~PlayedLauncher() {
  machines_.gone = [](launcher::Incarnation) {};
  machines_.door_changed = [](const launcher::Door&, bool) {};
  members_.clear();
}

void PlayedLauncher::begin(const Order& order) {
  const bool router = order.spec.role == net::Role::kRouter;
  const auto [last, is_new] = roles_.try_emplace(order.spec.name, order.spec.role);
  const bool changes_role = std::exchange(last->second, order.spec.role) != order.spec.role;
  const Duration takes = router || changes_role ? Duration::zero() : start_time_;
  world_.loop.after(takes, [this, order] {
    if (machines_.runs(order.incarnation)) {
      members_[order.incarnation] =
          world_.begin(order.spec, [this, who = order.incarnation] { end(who); });
    }
  });
}

void PlayedLauncher::gone(launcher::Incarnation who) {
  if (const auto member = members_.extract(who)) {
    world_.ends(*member.mapped());
  }
}

// Later, because the process may be at work just now.
void PlayedLauncher::end(launcher::Incarnation who) {
  world_.loop.after(Duration::zero(), [this, who] { machines_.end(who, "exit code 0", false); });
}

}  // namespace pdjob::simulation
