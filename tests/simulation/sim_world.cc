#include "tests/simulation/sim_world.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "decode/decode_worker.h"
#include "kvtransfer/open_transport.h"
#include "launcher/clusters/merged_cluster.h"
#include "launcher/job_replacements.h"
#include "launcher/job_rollout.h"
#include "launcher/job_runner.h"
#include "launcher/job_scaling.h"
#include "launcher/job_start.h"
#include "launcher/simulator/sim_cluster.h"
#include "launcher/simulator/sim_control.h"
#include "launcher/simulator/sim_router.h"
#include "launcher/specs/job_specs.h"
#include "prefill/prefill_worker.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/faulty_sockets.h"
#include "tests/simulation/shape.h"
#include "tests/simulation/sim_agents.h"
#include "tests/simulation/sim_async_clients.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/sim_hands.h"
#include "tests/simulation/sim_ledger.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/slow_watch.h"
#include "tests/simulation/watched_worker.h"
#include "tests/support/fault_transport.h"

namespace pdjob::simulation {
namespace {

using launcher::Incarnation;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kReadyWithin = seconds(30);
// How long after the last fault and arrival every request must have ended.
constexpr Duration kLivenessBound = seconds(20);
// How long the job may take to get well. A hang is noticed, and a process starts again after a
// back-off, and is proved.
constexpr Duration kHealsWithin = seconds(60);
// How long after that everything must be cleaned up. Leases and silences have timed out by then.
constexpr Duration kCleanupBound = seconds(5);
// Requests queue for far longer, so a lease that were not renewed would show.
constexpr Duration kLease = milliseconds(800);
// How long a KV link may take to open, and half of how long its peer may be silent.
constexpr Duration kConnectTimeout = milliseconds(150);
// A TCP connection over which nothing passes breaks after this time.
constexpr Duration kTcpGivesUp = seconds(4);

const launcher::JobTiming kTiming{
    .start_timeout = seconds(10),
    .stop_timeout = seconds(10),
    .drain_timeout = seconds(10),
    .lease = kLease,
    .heartbeat_timeout = seconds(2),
    .hang_timeout = seconds(4),
    .progress_timeout = seconds(4),
    .restart = {.backoff_min = milliseconds(50), .backoff_max = seconds(2), .attempts = 3}};

const net::HttpAddress kDoor{"10.0.0.1", 8000};
const std::string kHead = "head";  // The node of the routers; it is never lost.
const launcher::Node kHeadNode{.name = kHead, .host = kDoor.host, .routers_only = true};
const std::string kLauncherHost = "10.0.0.9";

// Of the job's file when the worker was started.
uint32_t file_of(const net::ProcessSpec& spec) {
  const auto work = launcher::read_worker_spec(spec.name, spec.work.empty() ? "{}" : spec.work);
  PDJOB_CHECK(work, work.error().message);
  const std::string name = std::filesystem::path(work->model).stem();
  return name.empty() ? 0 : static_cast<uint32_t>(std::stoul(name));
}

class WaitsForNodes final : public launcher::Cluster::Handler {
 public:
  void on_cluster_event(const launcher::ClusterEvent& /*event*/) override {}
};

class SimWorld final : public launcher::JobRunner::Observer {
 public:
  explicit SimWorld(const RunOptions& options)
      : options_(options),
        plan_(make_fault_plan(options.scenario, Instant(), options.seed)),
        faultless_(plan_.only_launchers_die()),
        shape_(draw_shape(options.scenario, faultless_, options.seed)),
        trace_(options.print),
        random_(mix(options.seed + 3)),
        http_(loop_, random_.next(), &cuts_),
        kv_(loop_, random_.next(), &cuts_),
        control_(loop_, cuts_, random_.next()),
        head_(std::make_unique<SimCluster>(
            loop_, machines_, random_.next(),
            [this](Instant when, SimLoop::Task task) { loop_.at(when, std::move(task)); })),
        cluster_(*head_),
        watch_(invariants_, machines_),
        slow_watch_(invariants_, shape_.stragglers),
        scene_{.loop = loop_,
               .http = http_,
               .kv = kv_,
               .join =
                   [this](SimProcess& process, net::ControlClient::Handler& handler,
                          const net::ProcessSpec& spec) {
                     return control_.join(process, handler, spec);
                   }},
        watcher_{.invariants = invariants_,
                 .trace = [this](const std::string& who,
                                 const std::string& what) { trace_.line(now(), who, what); },
                 .sabotage = options.sabotage,
                 .requests_queued = shape_.requests_queued},
        oracle_(shape_.engine.rows_per_sequence),
        client_("client",
                {.loop = loop_, .seed = random_.next(), .streams = &http_, .host = "10.0.0.8"}),
        clients_(client_, invariants_, oracle_,
                 [this](const std::string& what) { trace_.line(now(), "client", what); }),
        launcher_(new_launcher()),
        disk_(mix(options.seed + 4)),
        ledger_disk_(disk_),
        async_clients_(
            client_, invariants_, oracle_,
            [this](const std::string& what) { trace_.line(now(), "client", what); }, kDoor) {
    if (shape_.ends_heard_soon) {
      cluster_.tell_soon();
    }
    machines_.began = [this](const SimCluster::Order& order) { begin(order); };
    machines_.gone = [this](Incarnation who) { gone(who); };
    machines_.terminated = [this](Incarnation who) {
      if (members_.contains(who)) {
        members_.at(who)->terminate();
      } else {
        end(who, "signal 15 (Terminated)", false);  // It has just been started.
      }
    };
    machines_.signs_of = [this](Incarnation who) { return signs_of(who); };
    machines_.door_changed = [this](const launcher::Door& door, bool open) {
      const std::string name = door.host + ":" + std::to_string(door.port);
      open ? http_.hold(name) : http_.close_door(name);
    };
    machines_.spawn_fails = [this] { return fault(plan_.dials.spawn_fails); };
    control_.loses = [this] { return fault(plan_.dials.messages_lost); };
    control_.repeats = [this] { return fault(plan_.dials.messages_twice); };
    control_.sent = [this] { launcher_sent(); };
  }
  ~SimWorld() {
    machines_.gone = [](Incarnation) {};
    machines_.door_changed = [](const launcher::Door&, bool) {};
    members_.clear();
    rollout_.reset();
    scaling_.reset();
    stragglers_.reset();
    job_.reset();
  }
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  RunResult run();

 private:
  Instant now() const { return loop_.now(); }
  bool fault(double chance) { return faulty_ && chance > 0 && random_.chance(chance); }

  // --- the job
  void start();
  void start_agents();
  void open_clusters();
  void start_job();
  void run_job(const launcher::JobRunnerOptions& options);
  void start_by_hand();
  bool well() const;
  void expect_all_well();
  launcher::Demand demand_of(net::Role role, const std::string& model) const;
  launcher::JobRunnerOptions job_options();
  void take_specs(launcher::JobRunnerOptions& options) const;
  // A job of which nothing was left starts again while faults go on, and may fail. These do not.
  launcher::JobTiming timing() const {
    launcher::JobTiming timing = kTiming;
    if (shape_.lasts) {
      timing.start_timeout = kHealsWithin;
      timing.restart.attempts = 1000;
    }
    return timing;
  }
  worker::CoreFactory core_factory(net::Role role) const;
  void begin(const SimCluster::Order& order);
  std::unique_ptr<SimMember> make_worker(const SimCluster::Order& order);
  void gone(Incarnation who);
  launcher::VitalSigns signs_of(Incarnation who);
  // Later, because the process may be at work just now.
  void end(Incarnation who, const std::string& how, bool crashed) {
    loop_.at(now(), [this, who, how, crashed] { machines_.end(who, how, crashed); });
  }

  void on_doors_open(uint16_t /*port*/, uint16_t /*batch_port*/) override {}
  void on_door_failed(const std::string& reason) override {
    invariants_.expect(false, "doors open, but", reason);
  }
  void on_step(const launcher::Event& event, const std::vector<launcher::Effect>& effects) override;
  void look_for_slow(const launcher::Event& event, const std::vector<launcher::Effect>& effects);
  void on_ready() override {}
  void on_finish(const launcher::Finish& finish) override {
    if (!launcher_->alive()) {
      return;
    }
    ++finished_;
    invariants_.expect(finish.reason.empty(), "a job does not fail, but", finish.reason);
  }
  const launcher::Job& job() const { return job_->job(); }
  // The trainer's next order.
  void train(uint64_t target);
  void give_order(net::OrderAsked order);
  void pass_order(const net::OrderAsked& order);
  // The trainer has left: the fleet opens as soon as it can.
  void end_pauses();
  void check_weights(const router::Router& router);
  void check_pause(Incarnation who, const SimRouter& router);

  // --- launchers, one after the other
  std::unique_ptr<SimProcess> new_launcher() {
    return std::make_unique<SimProcess>(
        "launcher",
        SimProcess::Setting{
            .loop = loop_, .seed = random_.next(), .streams = &http_, .host = kLauncherHost});
  }
  void note(const launcher::Event& event, const std::vector<launcher::Effect>& effects);
  void save_ledger();
  void write_ledger();
  // The launcher will die, or dies: between two steps, before or after one of its writes, or in the
  // midst of what it sends.
  void doom(uint64_t how);
  bool dies_in_this_step(bool is_transition);
  void launcher_sent();
  void launcher_dies();
  void bury();
  void next_launcher();
  void check_trust();
  void check_sizes();
  bool sizes_are_settled() const {
    return !scaling_ || (scaling_->json().find("\"settled\":1") != std::string::npos &&
                         up_to_date(job().groups(), job()));
  }
  // Clients' requests go where a router thinks that a worker serves.
  void check_routers();

  // --- faults
  void strike(const Fault& fault);
  static bool is_router(const SimMember& member);
  SimMember* choose(uint64_t target, Incarnation* who = nullptr);
  void freeze(uint64_t target, Duration duration);
  void go_on(Incarnation who);
  void expect_not_starved(const launcher::SendSignal& killed);
  void cut(uint64_t target, Duration duration);
  void lose_node(uint64_t target, Duration duration);
  void make_slow(Incarnation who);
  void poison(uint64_t target);
  void make_normal(Incarnation who);
  void reorganise(uint64_t target);
  void change_workers(uint64_t target);
  void check_replacements();
  void heal();

  // --- the run
  // Whether the event takes place.
  bool takes_part() {
    const uint32_t number = events_++;
    return !options_.only || options_.only->contains(number);
  }
  // Runs tasks until `when`, until `done`, or until an invariant is broken.
  template <class Done>
  void run_until(Instant when, const Done& done) {
    while (!invariants_.broken() && now() < when && !done()) {
      watch_.look(now());
      if (job_) {
        slow_watch_.look(job(), launcher_->stopped(), now());
      }
      const Instant step = std::min(when, now() + milliseconds(50));
      while (!invariants_.broken() && loop_.run_next(step)) {
      }
      loop_.at(step, [] {});  // Time passes even if nothing happens.
      loop_.run_next(step);
    }
  }
  void run_until(Instant when) {
    run_until(when, [] { return false; });
  }
  void load_and_faults();
  void finish();
  void next_job();
  launcher::JobRecord known_to_next_job() const;
  std::map<std::string, launcher::ProcessRecord> workers_now() const;
  void stop_job();
  void expect_idle();
  void count(SimMember& member);

  const RunOptions& options_;
  FaultPlan plan_;
  const bool faultless_;
  const Shape shape_;
  SimLoop loop_;
  SimTrace trace_;
  Invariants invariants_;
  Random random_;
  SimCuts cuts_;
  FaultySockets http_;
  FaultySockets kv_;
  SimControl control_;
  SimMachines machines_;
  std::unique_ptr<SimCluster> head_;  // Null: the merged cluster has it.
  SimCluster& cluster_;               // The head and, without agents, the nodes.
  JobWatch watch_;
  SlowWatch slow_watch_;
  std::set<std::string> slow_nodes_;
  std::set<Incarnation> limping_;
  const SimScene scene_;
  const Watcher watcher_;
  Oracle oracle_;
  SimProcess client_;
  SimClients clients_;
  std::unique_ptr<SimProcess> launcher_;
  SimDisk disk_;  // Of the head, and of the launcher.
  SimLedger ledger_disk_;
  launcher::JobLedger ledger_;  // As the launcher has it in memory.
  bool save_due_ = false;
  launcher::NodeTrust trust_taken_;    // Of the job, when the ledger took what it knew.
  launcher::NodeTrust trust_written_;  // The same, when that was on disk.
  struct Doom {
    uint64_t steps = 0;  // 0: it is not this that kills it.
    uint64_t sends = 0;
    bool before_save = false;
    bool again = false;  // The next launcher dies, too, while it adopts.
    uint64_t seed = 0;
  };
  Doom doom_;
  SimAsyncClients async_clients_;
  std::vector<launcher::Node> nodes_;  // Of workers; all that ever joined.
  std::optional<SimLinks> links_;
  std::optional<SimAgents> agents_;
  std::unique_ptr<launcher::MergedCluster> merged_;        // Of the head and the agents.
  std::optional<launcher::JobRunnerOptions> job_options_;  // Of each launcher, less its record.
  std::unique_ptr<launcher::JobRunner> job_;               // Null: its launcher is dead. Or else:
  std::optional<launcher::JobRollout> rollout_;            // If a trainer gives orders.
  std::vector<net::OrderAsked> orders_waiting_;  // As routers keep them for the next launcher.
  uint64_t orders_ = 0;
  // Routers that were closed when this launcher took over a paused fleet. Empty after its first
  // order.
  std::set<Incarnation> paused_;
  std::unique_ptr<SimHands> hands_;
  std::vector<router::StaticWorker> by_hand_;  // What the router is told of them.
  std::map<Incarnation, std::unique_ptr<SimMember>> members_;
  bool faulty_ = false;
  uint32_t events_ = 0;
  uint32_t finished_ = 0;
  Instant all_arrived_{};       // What was sent while hosts were cut off.
  launcher::JobConfig config_;  // What JobScaling reads of them.
  launcher::LaunchPlan layout_;
  std::set<std::string> replaced_;  // Workers that leave because their group has changed.
  std::unique_ptr<launcher::JobScaling> scaling_;
  std::optional<launcher::JobReplacements> stragglers_;
  RunResult result_;
};

// --- the job

worker::CoreFactory SimWorld::core_factory(net::Role role) const {
  return role == net::Role::kPrefill
             ? prefill::core_factory({.chunk_tokens = shape_.chunk_tokens,
                                      .requests_queued = shape_.requests_queued,
                                      .prefix_cache = shape_.prefix_cache})
             : decode::core_factory({.local_chunk_tokens = shape_.chunk_tokens,
                                     .requests_queued = shape_.requests_queued,
                                     .prefix_cache = shape_.prefix_cache});
}

launcher::JobRunnerOptions SimWorld::job_options() {
  launcher::JobRunnerOptions options{.job = "simulated",
                                     .processes = {},
                                     .timing = timing(),
                                     .nonce = "n",
                                     .doors = {},
                                     .root_key = RootKey::of("simulated"),
                                     .specs = {}};
  const auto add = [&](const std::string& model, const std::string& word, net::Role role,
                       uint32_t count) {
    const std::string prefix = model == "m" ? word : model + "-" + word;
    for (uint32_t i = 0; i < count; ++i) {
      launcher::ProcessPlan process{.name = prefix + std::to_string(i),
                                    .role = role,
                                    .model = model,
                                    .demand = demand_of(role, model)};
      watch_.planned(process.name);
      options.processes.push_back(std::move(process));
    }
  };
  if (shape_.rollout) {
    options.weights.version = "default";
  }
  for (uint32_t i = 0; i < shape_.routers; ++i) {
    const std::string name = "r" + std::to_string(i);
    watch_.planned(name);
    options.processes.push_back(
        {.name = name, .role = net::Role::kRouter, .place = {.node = kHead}});
    options.doors.push_back({.name = name,
                             .node = kHead,
                             .host = kDoor.host,
                             .port = i == 0 ? kDoor.port : uint16_t{0},
                             .use = net::PortUse::kShared});
  }
  for (const std::string& model : shape_.workload.models) {
    add(model, "p", net::Role::kPrefill, shape_.prefill_workers + shape_.spares);
    add(model, "d", net::Role::kDecode, shape_.decode_workers + shape_.spares);
    add(model, "b", net::Role::kBoth, shape_.both_workers);
    launcher::ModelConfig& scaled = config_.models.emplace_back();
    scaled.served_name = model;
    scaled.prefill_group.scaling = scaled.decode_group.scaling = shape_.scaling;
    for (const net::Role role : {net::Role::kPrefill, net::Role::kDecode}) {
      const bool prefills = role == net::Role::kPrefill;
      const uint32_t workers = prefills ? shape_.prefill_workers : shape_.decode_workers;
      layout_.groups.push_back({.role = role,
                                .model = model,
                                .group = {.name = model + "-" + to_string(role),
                                          .demand = demand_of(role, model),
                                          .workers = workers + shape_.spares,
                                          .workers_min = 1},
                                .spares = shape_.spares});
    }
  }
  config_.scaling.zero_after = shape_.zero_after;
  take_specs(options);
  for (launcher::ProcessPlan& process : options.processes) {
    process.spec = options.specs.digest(process.role, process.model);
  }
  return options;
}

void SimWorld::take_specs(launcher::JobRunnerOptions& options) const {
  options.specs = launcher::specs_of(config_);
  options.groups = launcher::groups_of(config_, layout_);
}

launcher::Demand SimWorld::demand_of(net::Role role, const std::string& model) const {
  launcher::Demand demand{.cores = 1, .role = to_string(role), .model = model};
  demand.parts = role == net::Role::kDecode ? shape_.decode_parts : 1;
  if (role == net::Role::kDecode && shape_.decode_wants_gpus) {
    demand.gpus = 1;
    demand.gpu_percent = shape_.decode_gpu_percent;
  } else if (role == net::Role::kPrefill && shape_.prefill_wants_labels) {
    demand.labels = {{"disk", "nvme"}};
  }
  return demand;
}

void SimWorld::start() {
  if (!shape_.lasts) {
    cluster_.join(kHeadNode);
  }
  const uint32_t processes = shape_.routers + static_cast<uint32_t>(shape_.workload.models.size()) *
                                                  (shape_.prefill_workers + shape_.decode_workers +
                                                   shape_.both_workers + 2 * shape_.spares);
  const bool alike = shape_.stragglers.on();  // Only then are workers compared.
  const uint32_t extra_cores = (shape_.decode_parts - 1) * (shape_.decode_workers + shape_.spares) *
                               static_cast<uint32_t>(shape_.workload.models.size());
  for (uint32_t i = 0; i < shape_.nodes; ++i) {
    launcher::Node node{.name = "n" + std::to_string(i),
                        .host = "10.0.1." + std::to_string(i + 1),
                        .cores = processes / shape_.nodes + 3 + extra_cores,
                        .cluster = alike || i % 2 == 0 ? "east" : "west"};
    for (uint32_t gpu = 0; gpu < node.cores - 1; ++gpu) {
      node.gpus.push_back(std::to_string(gpu));
    }
    if (alike || i % 2 == 0) {
      node.labels = {{"disk", "nvme"}};
    }
    if (shape_.agents) {
      node.name = node.cluster + "/" + node.name;
    } else {
      cluster_.join(node);
    }
    nodes_.push_back(node);
  }
  if (shape_.agents) {
    start_agents();
  }
  shape_.by_hand ? start_by_hand() : start_job();
}

// The job starts when all nodes have joined.
void SimWorld::start_agents() {
  links_.emplace(loop_, cuts_, random_.next());
  links_->loses = [this] { return fault(plan_.dials.agent_messages_lost); };
  links_->sent = [this] { launcher_sent(); };
  agents_.emplace(loop_, machines_, *links_,
                  SimAgents::Setting{.lease = shape_.agent_lease,
                                     .orphan_timeout = shape_.orphan_timeout,
                                     .owner = shape_.lasts ? "the owner" : ""},
                  random_.next(), [this](const std::string& who, const std::string& what) {
                    trace_.line(now(), who, what);
                  });
  watch_.let_outlive(agents_->outlives(),
                     [this](const std::string& node) { return agents_->awake_since(node); });
  if (shape_.lasts) {
    ledger_ = ledger_disk_.begin();
  }
  open_clusters();
  WaitsForNodes nobody;
  merged_->report_to(nobody);
  if (shape_.lasts) {
    agents_->add(kHeadNode);
  }
  for (const launcher::Node& node : nodes_) {
    agents_->add(node);
  }
  const auto all = [this] { return merged_->nodes().size() == nodes_.size() + 1; };
  run_until(now() + kReadyWithin, all);
  invariants_.expect(all(), "all nodes join, but");
}

// With a launcher that may die, the head has an agent, too.
void SimWorld::open_clusters() {
  std::vector<std::unique_ptr<launcher::Cluster>> clusters;
  clusters.push_back(
      shape_.lasts ? agents_->serve(kHeadNode.cluster, *launcher_, ledger_.launcher, kHeadNode)
                   : std::move(head_));
  for (const char* const name : {"east", "west"}) {
    clusters.push_back(agents_->serve(name, *launcher_, std::max<uint64_t>(ledger_.launcher, 1)));
  }
  merged_ = std::make_unique<launcher::MergedCluster>(*launcher_, std::move(clusters));
}

void SimWorld::start_job() {
  launcher::Cluster& cluster = merged_ ? static_cast<launcher::Cluster&>(*merged_) : cluster_;
  watch_.begin(cluster.nodes());
  if (shape_.lasts && faultless_ && shape_.workload.killer == Kills::kNobody) {
    watch_.calm();
  }
  job_options_ = job_options();
  job_options_->launcher = ledger_.launcher;
  run_job(*job_options_);
}

void SimWorld::run_job(const launcher::JobRunnerOptions& options) {
  launcher::Cluster& cluster = merged_ ? static_cast<launcher::Cluster&>(*merged_) : cluster_;
  job_ = std::make_unique<launcher::JobRunner>(*launcher_, cluster, options, *this);
  if (shape_.scales) {
    scaling_ = std::make_unique<launcher::JobScaling>(
        *launcher_, *job_, config_, layout_,
        [this](const std::string& line) { trace_.line(now(), "scaling", line); });
  }
  if (shape_.stragglers.on() || shape_.poisons) {
    stragglers_.emplace(
        *launcher_, *job_,
        launcher::JobReplacements::Options{
            .config = shape_.stragglers,
            .replaces_failing = shape_.poisons,
            .record = ledger_.stragglers,
            .say = [this](const std::string& line) { trace_.line(now(), "replacements", line); },
            .keep =
                [this](launcher::StragglerRecord record) {
                  ledger_.stragglers = std::move(record);
                }});
  }
  if (shape_.rollout) {
    rollout_.emplace(
        *launcher_, *job_,
        launcher::JobRollout::Options{
            .timing = {.prepare_timeout = seconds(2),
                       .quiesce_timeout = seconds(2),
                       .apply_timeout = seconds(8)},
            .record = ledger_.rollout,
            .launcher = ledger_.launcher,
            .say = [this](const std::string& line) { trace_.line(now(), "launcher", line); },
            .keep =
                [this](const launcher::RolloutRecord& record) {
                  ledger_.rollout = record;
                  if (shape_.lasts && launcher_->alive()) {
                    write_ledger();
                  }
                }});
  }
  launcher_->post([this] { job_->start(control_.serve(*launcher_, *job_, ledger_.launcher)); });
  for (const net::OrderAsked& order : std::exchange(orders_waiting_, {})) {
    pass_order(order);
  }
}

void SimWorld::start_by_hand() {
  std::vector<SimCluster::Order> orders;
  for (const launcher::ProcessPlan& process : job_options().processes) {
    const bool router = process.role == net::Role::kRouter;
    const auto number = static_cast<uint16_t>(orders.size());
    const launcher::Node& node = nodes_[number % nodes_.size()];
    SimCluster::Order order{.node = router ? kHead : node.name};
    order.spec.name = process.name;
    order.spec.role = process.role;
    order.spec.model = process.model;
    order.spec.host = node.host;
    order.spec.port = static_cast<uint16_t>(9000 + number);
    if (!router) {
      by_hand_.push_back({.role = process.role, .address = {node.host, order.spec.port}});
    }
    orders.push_back(std::move(order));
  }
  hands_ = std::make_unique<SimHands>(loop_, cluster_, random_.next());
  hands_->start(std::move(orders));
}

// Without a launcher: each router knows the workers as they are now.
bool SimWorld::well() const {
  if (!hands_) {
    return job_ && watch_.well(job()) && sizes_are_settled();
  }
  const auto known = [this](const router::Router& core) {
    return std::ranges::all_of(hands_->running(), [&](const auto& one) {
      return one.first.starts_with("r") ||
             std::ranges::any_of(core.workers().all(), [&](const auto& row) {
               return row.second.entry.engine_id == one.second && !row.second.silent;
             });
    });
  };
  return hands_->all_run() && members_.size() == hands_->running().size() &&
         std::ranges::all_of(members_, [&](const auto& one) {
           const auto* router = dynamic_cast<const SimRouter*>(one.second.get());
           return router == nullptr || known(router->core());
         });
}

void SimWorld::expect_all_well() {
  if (!hands_) {
    watch_.expect_all_well(job());
    invariants_.expect(sizes_are_settled(), "each group gets its size, but",
                       scaling_ ? scaling_->text() : "");
  } else {
    invariants_.expect(well(), "a router knows the workers that run, but");
  }
}

void SimWorld::begin(const SimCluster::Order& order) {
  const Duration takes = milliseconds(20 + random_.below(300));
  loop_.after(takes, [this, order] {
    if (!machines_.runs(order.incarnation)) {
      return;
    }
    trace_.line(now(), order.spec.engine_id, "begins");
    members_[order.incarnation] =
        order.spec.role == net::Role::kRouter
            ? std::make_unique<SimRouter>(
                  scene_,
                  SimRouterOptions{.spec = order.spec,
                                   .config = shape_.router,
                                   .door = kDoor,
                                   .workers = by_hand_},
                  random_.next(),
                  [this, who = order.incarnation] { end(who, "exit code 0", false); })
            : make_worker(order);
    if (slow_nodes_.contains(order.node)) {
      make_slow(order.incarnation);
    }
  });
}

std::unique_ptr<SimMember> SimWorld::make_worker(const SimCluster::Order& order) {
  const net::Role role = order.spec.role;
  auto engine = std::make_unique<FaultyEngine>(
      FaultyEngine::Options{
          .size = role == net::Role::kPrefill ? shape_.prefill_engine : shape_.engine,
          .shared_kv = shape_.shared_kv,
          .model = order.spec.model,
          .step_time = shape_.step_time,
          .file = file_of(order.spec)},
      FaultyEngine::Faults{.step_fails = [this] { return fault(plan_.dials.step_fails); },
                           .reserve_fails = [this] { return fault(plan_.dials.reserve_fails); },
                           .crash =
                               [this, who = order.incarnation] {
                                 clients_.on_kill();
                                 end(who, "signal 11 (Segmentation fault)", true);
                               },
                           .now = [this] { return now(); }});
  return std::make_unique<WatchedWorker>(
      scene_, watcher_,
      SimWorkerOptions{.spec = order.spec,
                       .two_hop = shape_.two_hop,
                       .make_core = core_factory(role),
                       .kv = {.transport = shape_.shared_kv ? kvtransfer::TransportKind::kAuto
                                                            : kvtransfer::TransportKind::kTcp,
                              .lease = kLease,
                              .connect_timeout = kConnectTimeout},
                       .open_transport = kvtransfer::with_faults([this](TransferId /*id*/) {
                         using kvtransfer::FaultKind;
                         return kvtransfer::FaultPlan{
                             .kind = fault(plan_.dials.row_damaged)  ? FaultKind::kFlipBit
                                     : fault(plan_.dials.push_fails) ? FaultKind::kFail
                                                                     : FaultKind::kNone,
                             .bit = random_.next()};
                       }),
                       .misdirect =
                           [this, who = order.spec.engine_id](kvtransfer::EndpointAddress& peer) {
                             // The other leg of a hedged request may be faster than the failure.
                             const bool calm = plan_.has_only({&FaultWeights::poison}) &&
                                               shape_.router.hedge_quantile == 0;
                             if (slow_watch_.fails(who, peer.engine_id, calm, now())) {
                               peer = {.engine_id = "that of a dead one",
                                       .host = peer.host,
                                       .port = 1,
                                       .unix_path = "@nobody",
                                       .host_id = peer.host_id};
                             }
                           }},
      std::move(engine), random_.next(),
      [this, who = order.incarnation] { end(who, "exit code 0", false); });
}

void SimWorld::gone(Incarnation who) {
  if (auto member = members_.extract(who)) {
    trace_.line(now(), member.mapped()->process().name(), "is gone");
    count(*member.mapped());
    const bool has_disk = shape_.asynchronous && is_router(*member.mapped());
    disk_.kill([&member] { member.mapped().reset(); });
    if (has_disk && random_.chance(0.5)) {
      disk_.cut_power();
    }
  }
}

void SimWorld::count(SimMember& member) {
  if (auto* worker = dynamic_cast<SimWorker*>(&member)) {
    result_.rows_reused += worker->rows_reused();
  } else if (auto* router = dynamic_cast<SimRouter*>(&member)) {
    result_.pairs_suspected += router->metric("pdjob_router_pairs_suspected_total");
    result_.streams_continued += router->metric("pdjob_router_continuations_total");
  }
}

void SimWorld::on_step(const launcher::Event& event, const std::vector<launcher::Effect>& effects) {
  if (!launcher_->alive()) {
    return;  // Nothing of this happens any more.
  }
  const std::vector<std::string> words = job_words(event, effects);
  for (const std::string& line : words) {
    trace_.line(now(), "launcher", line);
  }
  const bool dies = dies_in_this_step(!words.empty());
  if (dies && doom_.before_save) {
    launcher_dies();
    return;
  }
  if (shape_.lasts) {
    note(event, effects);
    if (!launcher_->alive() && ledger_disk_.read() != ledger_) {
      return;  // It died before the step was on disk.
    }
  }
  watch_.after(job(), event, effects, now());
  look_for_slow(event, effects);
  if (dies) {
    launcher_dies();
  }
  if (!launcher_->alive()) {
    return;
  }
  if (scaling_ && !words.empty()) {
    check_sizes();
  }
  if (rollout_) {
    rollout_->job_changed(event);
  }
}

// The job has taken the event: what it replaces is leaving now.
void SimWorld::look_for_slow(const launcher::Event& event,
                             const std::vector<launcher::Effect>& effects) {
  if (const auto* replace = std::get_if<launcher::ReplaceAsked>(&event)) {
    slow_watch_.replaced(job(), *replace, now());
  } else if (!rollout_ && !launcher::is_heartbeat(event)) {
    check_replacements();
  }
  for (const launcher::Effect& effect : effects) {
    if (const auto* spawn = std::get_if<launcher::Spawn>(&effect)) {
      slow_watch_.spawned(job(), *spawn, nodes_, now());
    } else if (const auto* signal = std::get_if<launcher::SendSignal>(&effect)) {
      expect_not_starved(*signal);
    }
  }
}

// A router that admits requests knows no worker that serves other weights than the fleet's.
void SimWorld::check_weights(const router::Router& router) {
  if (!rollout_ || router.closed()) {
    return;
  }
  for (const auto& [id, worker] : router.workers().all()) {
    const launcher::Process* const process = job().find(worker.entry.name);
    const bool lives = process != nullptr && process->engine_id == worker.entry.engine_id &&
                       process->state == launcher::ProcessState::kReady;
    invariants_.expect(!lives || worker.entry.standing != net::Standing::kServing ||
                           worker.entry.weight_version == rollout_->core().weights().version,
                       "an open fleet serves one version,", rollout_->core().weights().version,
                       "but", worker.entry.engine_id, "has", worker.entry.weight_version);
  }
}

// A new launcher opens no paused fleet.
void SimWorld::check_pause(Incarnation who, const SimRouter& router) {
  invariants_.expect(router.core().closed() || !paused_.contains(who),
                     "a paused fleet waits for an order, but a router is open,", who.value);
}

// --- launchers

void SimWorld::note(const launcher::Event& event, const std::vector<launcher::Effect>& effects) {
  const launcher::LedgerDue due = ledger_due(job(), event, effects);
  if (due == launcher::LedgerDue::kBefore) {
    save_ledger();
  } else if (due == launcher::LedgerDue::kSoon && !std::exchange(save_due_, true)) {
    launcher_->call_at(now() + milliseconds(20), [this] {
      save_due_ = false;
      if (job_) {
        save_ledger();
      }
    });
  }
}

void SimWorld::save_ledger() {
  take(ledger_, job());
  trust_taken_ = job().trust();
  write_ledger();
}

void SimWorld::write_ledger() {
  const bool saved = ledger_disk_.save(ledger_);
  invariants_.expect(saved, "the launcher is the last one, but");
  if (!disk_.crashed() || ledger_disk_.read() == ledger_) {
    trust_written_ = trust_taken_;
  }
  if (disk_.crashed()) {
    launcher_dies();
  }
}

void SimWorld::doom(uint64_t how) {
  if (!launcher_->alive() || !shape_.lasts) {
    return;
  }
  Random random(how);
  doom_ = {.before_save = random.chance(0.5), .again = random.chance(0.3), .seed = random.next()};
  const uint64_t moment = 1 + random.below(10);
  // One that stands still is killed by the next one.
  switch (launcher_->stopped() ? 0 : random.below(4)) {
    case 0:
      launcher_dies();
      break;
    case 1:
      doom_.steps = moment;
      break;
    case 2:
      doom_.sends = moment;
      break;
    default:
      disk_.crash_after(moment);
  }
}

// Counts down. Returns true when it reaches zero.
bool runs_out(auto& left) {
  if (left == 0) {
    return false;
  }
  --left;
  return left == 0;
}

// Steps that order or learn something.
bool SimWorld::dies_in_this_step(bool is_transition) {
  return is_transition && runs_out(doom_.steps);
}

void SimWorld::launcher_sent() {
  if (runs_out(doom_.sends)) {
    launcher_dies();
  }
}

void SimWorld::launcher_dies() {
  if (!launcher_->alive()) {
    return;
  }
  trace_.line(now(), "launcher", "dies");
  ++result_.launchers_died;
  launcher_->die();
  disk_.kill([] {});
  doom_.steps = doom_.sends = 0;
  loop_.at(now(), [this] { bury(); });  // It may be at work just now.
}

void SimWorld::bury() {
  http_.forget(*launcher_);
  scaling_.reset();
  stragglers_.reset();
  rollout_.reset();
  job_.reset();
  merged_.reset();
  const Duration away = milliseconds(random_.below(random_.chance(0.3) ? 4000 : 300));
  loop_.after(away, [this, dead = ledger_.launcher] {
    if (ledger_.launcher == dead) {
      next_launcher();
    }
  });
}

void SimWorld::next_launcher() {
  launcher_ = new_launcher();
  save_due_ = false;
  ledger_ = ledger_disk_.begin();
  change_clock(ledger_, {}, now());
  trace_.line(now(), "launcher", "begins, number " + std::to_string(ledger_.launcher));
  invariants_.expect(ledger_.planned, "a launcher finds the ledger of the one before, but");
  paused_.clear();
  for (const auto& [who, member] : members_) {
    const auto* const router = dynamic_cast<const SimRouter*>(member.get());
    if (router != nullptr && router->core().closed() && ledger_.rollout.paused) {
      paused_.insert(who);
    }
  }
  open_clusters();
  watch_.adopt(known_to_next_job(), now());
  launcher::JobRunnerOptions options = *job_options_;
  options.launcher = ledger_.launcher;
  options.record = ledger_.job;
  for (launcher::Door& door : options.doors) {
    door.port = kDoor.port;
  }
  run_job(options);
  check_trust();
  slow_watch_.adopt();
  if (faulty_ && std::exchange(doom_.again, false)) {
    doom(doom_.seed);
  }
}

// What the ledger has, and what the plan adds to warm workers.
launcher::JobRecord SimWorld::known_to_next_job() const {
  launcher::JobRecord known = ledger_.job;
  if (known.warm) {
    const launcher::Job next(job_options_->processes, job_options_->timing, "n",
                             {.record = ledger_.job});
    known.processes.assign(next.processes().begin(), next.processes().end());
  }
  return known;
}

void SimWorld::check_trust() {
  for (const launcher::Node& node : nodes_) {
    invariants_.expect(
        job().trust().faults(node.name, now()) == trust_written_.faults(node.name, now()),
        "a new launcher trusts nodes as the last one did, but not", node.name);
  }
}

void SimWorld::check_sizes() {
  for (const launcher::JobGroup& group : job().groups()) {
    const uint64_t members = members_of(group, job()).size();
    invariants_.expect(members <= shape_.scaling.workers_max + shape_.spares,
                       "a group keeps its maximum, but has", members);
  }
}

void SimWorld::check_routers() {
  const bool probed = watch_.probes(now());  // Probes pass every limit.
  for (const auto& [who, member] : members_) {
    const auto* router = dynamic_cast<const SimRouter*>(member.get());
    if (router == nullptr) {
      continue;
    }
    check_weights(router->core());
    check_pause(who, *router);
    for (const auto& [id, worker] : router->core().workers().all()) {
      invariants_.expect(hands_ || worker.entry.standing != net::Standing::kServing ||
                             watch_.proved(worker.entry.engine_id),
                         "clients' requests go to proved workers, but to", worker.entry.engine_id);
      const uint32_t limit = worker.entry.role == net::Role::kPrefill
                                 ? shape_.router.prefill_in_flight
                                 : shape_.router.decode_in_flight;
      invariants_.expect(limit == 0 || probed || worker.requests_in_flight <= limit,
                         "a worker has at most its limit of requests, but", worker.entry.name,
                         worker.requests_in_flight);
    }
  }
}

// --- faults

bool SimWorld::is_router(const SimMember& member) {
  return dynamic_cast<const SimRouter*>(&member) != nullptr;
}

SimMember* SimWorld::choose(uint64_t target, Incarnation* who) {
  if (members_.empty()) {
    return nullptr;
  }
  auto member = members_.begin();
  std::advance(member, static_cast<ptrdiff_t>(target % members_.size()));
  if (who != nullptr) {
    *who = member->first;
  }
  return member->second.get();
}

void SimWorld::strike(const Fault& fault) {
  trace_.line(now(), "fault", to_string(fault.kind));
  Incarnation who;
  SimMember* const member = choose(fault.target, &who);
  auto* const worker = dynamic_cast<WatchedWorker*>(member);
  if (fault.kind == &FaultWeights::kill) {
    const auto& followers = machines_.followers();
    if (!followers.empty() && fault.target % 3 == 0) {
      const auto part =
          std::next(followers.begin(), static_cast<ptrdiff_t>(fault.target / 3 % followers.size()));
      machines_.end_follower(SimMachines::Part(part->first), "signal 9 (Killed)");
    } else if (member != nullptr) {
      machines_.end(who, "signal 9 (Killed)", false);
    }
  } else if (fault.kind == &FaultWeights::freeze) {
    freeze(fault.target, fault.duration);
  } else if (fault.kind == &FaultWeights::starve) {
    if (member != nullptr) {
      member->process().starve();
      loop_.after(fault.duration, [this, who] { go_on(who); });
    }
  } else if (fault.kind == &FaultWeights::slow) {
    if (worker != nullptr && !slow_watch_.is_slow(who)) {
      make_slow(who);
      loop_.after(fault.duration, [this, who] { make_normal(who); });
    }
  } else if (fault.kind == &FaultWeights::limps) {
    if (worker != nullptr) {
      limping_.insert(who);
      make_slow(who);
    }
  } else if (fault.kind == &FaultWeights::node_limps) {
    const std::string& node = nodes_[fault.target % nodes_.size()].name;
    slow_nodes_.insert(node);
    for (const auto& [each, order] : machines_.running()) {
      if (order.node == node) {
        make_slow(each);
      }
    }
  } else if (fault.kind == &FaultWeights::poison) {
    poison(fault.target);
  } else if (fault.kind == &FaultWeights::hang) {
    if (worker != nullptr) {
      clients_.on_connection_broken();
      worker->faulty().hang();
    }
  } else if (fault.kind == &FaultWeights::step_fails) {
    if (worker != nullptr) {
      worker->faulty().fail_next_step();
    }
  } else if (fault.kind == &FaultWeights::kv_link_breaks) {
    kv_.reset_one();
  } else if (fault.kind == &FaultWeights::connection_breaks) {
    clients_.on_connection_broken();
    http_.reset_one();
  } else if (fault.kind == &FaultWeights::goes_dead) {
    clients_.on_connection_broken();
    (fault.target % 2 == 0 ? http_ : kv_).mute_one(kTcpGivesUp);
  } else if (fault.kind == &FaultWeights::partition) {
    cut(fault.target, fault.duration);
  } else if (fault.kind == &FaultWeights::agent_link_breaks) {
    links_->break_one();
  } else if (fault.kind == &FaultWeights::node_lost) {
    lose_node(fault.target, fault.duration);
  } else if (fault.kind == &FaultWeights::trainer) {
    train(fault.target);
  } else if (fault.kind == &FaultWeights::launcher_dies) {
    doom(fault.target);
  } else {
    reorganise(fault.target);
  }
}

void SimWorld::make_slow(Incarnation who) {
  const auto member = members_.find(who);
  auto* const worker =
      member == members_.end() ? nullptr : dynamic_cast<WatchedWorker*>(member->second.get());
  if (worker != nullptr) {
    worker->faulty().set_slowness(20);
    slow_watch_.slow(who);
    trace_.line(now(), worker->process().name(), "computes slowly");
  }
}

void SimWorld::poison(uint64_t target) {
  if (!launcher_->alive()) {
    return;
  }
  std::vector<const launcher::Process*> prefill;
  std::vector<const launcher::Process*> decode;
  for (const launcher::Process& process : job().processes()) {
    if (process.state == launcher::ProcessState::kReady && process.is_worker()) {
      (process.role == net::Role::kPrefill ? prefill : decode).push_back(&process);
    }
  }
  if (!prefill.empty() && !decode.empty()) {
    const std::string& from = prefill[target % prefill.size()]->engine_id;
    const std::string& to = decode[target / prefill.size() % decode.size()]->engine_id;
    slow_watch_.poison(to, from);
    trace_.line(now(), to, "has a wrong address of " + from);
  }
}

void SimWorld::make_normal(Incarnation who) {
  const auto order = machines_.running().find(who);
  if (members_.contains(who) && !limping_.contains(who) &&
      !slow_nodes_.contains(order->second.node)) {
    static_cast<WatchedWorker&>(*members_.at(who)).faulty().set_slowness(1);
    slow_watch_.normal(who, now());
  }
}

// With kAbort, replies are shorter than what clients expect here.
void SimWorld::train(uint64_t target) {
  Random random(target);
  net::OrderAsked order{
      .mode = random.chance(0.5) ? net::PauseMode::kWait : net::PauseMode::kRetract,
      .keeps_pause = random.chance(0.2)};
  if (random.chance(0.6)) {
    order.kind = net::OrderKind::kUpdate;
    order.version = "v" + std::to_string(random.below(20));
    order.path = "/w/" + order.version;
  } else {
    static constexpr net::OrderKind kOthers[] = {net::OrderKind::kPause, net::OrderKind::kResume,
                                                 net::OrderKind::kFlush, net::OrderKind::kRename,
                                                 net::OrderKind::kCancel};
    order.kind = kOthers[random.below(std::size(kOthers))];
    order.version =
        order.kind == net::OrderKind::kRename ? "renamed-" + std::to_string(random.below(20)) : "";
  }
  give_order(std::move(order));
}

void SimWorld::give_order(net::OrderAsked order) {
  order.id = ++orders_;
  launcher_->alive() ? pass_order(order) : orders_waiting_.push_back(order);
}

void SimWorld::pass_order(const net::OrderAsked& order) {
  paused_.clear();
  launcher_->post([this, order] { rollout_->order({.peer = "", .id = order.id}, order); });
}

void SimWorld::end_pauses() {
  if (finished_ > 0) {
    return;
  }
  if (rollout_ && rollout_->core().record().paused) {
    give_order({.kind = net::OrderKind::kResume});
  }
  loop_.after(milliseconds(500), [this] { end_pauses(); });
}

launcher::VitalSigns SimWorld::signs_of(Incarnation who) {
  const auto member = members_.find(who);
  if (member == members_.end()) {
    return {};
  }
  const SimProcess& process = member->second->process();
  const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(now().time_since_epoch());
  const bool starved = process.starved_since() != kNever;
  const auto waited = static_cast<uint64_t>(process.waited() / std::chrono::microseconds(1));
  return {.asleep = !starved,
          .stopped = process.stopped() && !starved,
          .runnable = starved,
          .turns = process.turns(),
          .at_ms = static_cast<uint64_t>(at.count()),
          .ran_us = 0,
          .waited_us = waited,
          .any_runnable = starved,
          .all_ran_us = 0,
          .all_waited_us = waited};
}

// The launcher may be stopped, too, and so may an agent.
void SimWorld::freeze(uint64_t target, Duration duration) {
  if (agents_ && target % 3 == 0) {
    agents_->freeze(nodes_[target / 3 % nodes_.size()].name, duration);
    return;
  }
  if (target % (members_.size() + 1) == members_.size() || (agents_ && target % 3 == 1)) {
    launcher_->stop();
    loop_.after(duration, [this] { launcher_->go_on(); });
    return;
  }
  Incarnation who;
  choose(target % (members_.size() + 1), &who)->process().stop();
  loop_.after(duration, [this, who] { go_on(who); });
}

void SimWorld::go_on(Incarnation who) {
  if (members_.contains(who)) {
    members_.at(who)->process().go_on();
  }
}

// Its heartbeats came until it got no core.
void SimWorld::expect_not_starved(const launcher::SendSignal& killed) {
  const auto process =
      std::ranges::find(job().processes(), killed.incarnation, &launcher::Process::incarnation);
  const auto member = members_.find(killed.incarnation);
  if (killed.signal == launcher::Signal::kKill && process != job().processes().end() &&
      member != members_.end() && process->killed_for == "silent") {
    invariants_.expect(
        process->heartbeats.last() + seconds(1) < member->second->process().starved_since(),
        "nobody is killed for want of a core, but", process->name);
  }
}

void SimWorld::cut(uint64_t target, Duration duration) {
  std::vector<std::string> hosts = {kDoor.host, kLauncherHost};
  for (const launcher::Node& node : nodes_) {
    hosts.push_back(node.host);
  }
  const bool of_launcher = agents_ && target / 64 % 2 == 0;
  const std::string& a = of_launcher ? kLauncherHost : hosts[target % hosts.size()];
  const std::string& b = hosts[target / hosts.size() % hosts.size()];
  if (shape_.lasts && std::minmax(a, b) == std::minmax(kDoor.host, kLauncherHost)) {
    return;  // They are one machine.
  }
  cuts_.cut(a, b, now() + duration);
  if (target % 3 != 0) {  // Otherwise only one direction.
    cuts_.cut(b, a, now() + duration);
  }
  if (links_) {
    links_->cut(a, b, duration);
  }
}

void SimWorld::lose_node(uint64_t target, Duration duration) {
  clients_.on_connection_broken();
  const launcher::Node& node = nodes_[target % nodes_.size()];
  if (agents_) {
    ++result_.nodes_lost;
    target / nodes_.size() % 2 == 0 ? agents_->kill(node.name) : agents_->lose_power(node.name);
    loop_.after(duration, [this, node] { agents_->revive(node.name); });
  } else if (cluster_.has(node.name)) {
    ++result_.nodes_lost;
    cluster_.lose(node.name);
    loop_.after(duration, [this, node] { cluster_.join(node); });
  }
}

// Orders, as an autoscaler gives them. It sees what the launcher tells, and a stopped one tells
// nothing: it could take the last worker of a role twice.
void SimWorld::reorganise(uint64_t target) {
  if (hands_ || !job_ || !launcher_->alive() || launcher_->stopped() ||
      job().state() != launcher::JobState::kReady) {
    return;
  }
  if (scaling_) {
    change_workers(target);
    return;
  }
  Random random(target);
  launcher::Sizes sizes;
  for (const launcher::JobGroup& group : job().groups()) {
    if (group.model == shape_.workload.models.front()) {
      sizes[group.name] = group.wanted;
    }
  }
  uint32_t& one = random.chance(0.5) ? sizes.begin()->second : sizes.rbegin()->second;
  uint32_t& other = &one == &sizes.begin()->second ? sizes.rbegin()->second : sizes.begin()->second;
  if (one < 2 || random.chance(0.4)) {
    ++one;
  } else {
    --one;
    other += random.chance(0.5) ? 1 : 0;
  }
  launcher_->post(
      [this, sizes] { job_->submit(launcher::GroupsChanged{with_sizes(job().groups(), sizes)}); });
}

// The job's file has changed: its next launcher reads the new one, too.
void SimWorld::change_workers(uint64_t target) {
  oracle_.add_file(change_job_file(target, config_));
  take_specs(*job_options_);
  launcher_->post([this, specs = job_options_->specs, groups = job_options_->groups] {
    job_->set_specs(specs);
    launcher::Sizes sizes;
    for (const launcher::JobGroup& group : job().groups()) {
      sizes[group.name] = group.wanted;
    }
    scaling_->change(with_sizes(groups, sizes));
  });
}

// The job has taken a step. A worker that leaves to start again with its role has another spec.
void SimWorld::check_replacements() {
  std::set<std::string> leaving;
  for (const launcher::Process& process : job().processes()) {
    if (process.fate != launcher::Fate::kChangeRole || process.next_role != process.role) {
      continue;
    }
    leaving.insert(process.name);
    for (const launcher::Process& other : job().processes()) {
      invariants_.expect(
          replaced_.contains(process.name) || !watch_.proved(process.engine_id) ||
              &other == &process || other.role != process.role || other.model != process.model ||
              other.state == launcher::ProcessState::kReady,
          "a worker is replaced while all others of its group serve, but not", other.name);
    }
  }
  replaced_ = std::move(leaving);
}

void SimWorld::heal() {
  faulty_ = false;
  all_arrived_ = cuts_.heal();
  launcher_->go_on();
  doom_ = {};
  if (launcher_->alive()) {
    disk_.kill([] {});  // It does not crash any more.
  }
  if (shape_.rollout) {
    end_pauses();
  }
  if (agents_) {
    agents_->go_on();
  }
  for (const auto& [who, member] : members_) {
    member->process().go_on();
  }
  for (const launcher::Node& node : nodes_) {
    if (agents_) {
      agents_->revive(node.name);
    } else if (!cluster_.has(node.name)) {
      cluster_.join(node);
    }
  }
}

// --- the run

RunResult SimWorld::run() {
  start();
  run_until(now() + kReadyWithin, [this] { return well(); });
  expect_all_well();
  load_and_faults();
  finish();
  if (shape_.lasts && !hands_ && !rollout_) {
    next_job();
  }
  stop_job();
  for (const auto& [who, member] : members_) {
    count(*member);
  }
  result_.violation = invariants_.violation();
  result_.trace_hash = trace_.hash();
  result_.trace_lines = trace_.lines();
  result_.events = events_;
  result_.counts = clients_.counts();
  result_.later = async_clients_.counts();
  result_.job = watch_.counts();
  result_.slow_replaced = slow_watch_.replaced_count();
  result_.failing_replaced = slow_watch_.failing_count();
  return result_;
}

void SimWorld::load_and_faults() {
  const Instant begins = now();
  const auto told = [this](const std::string& what) {
    trace_.line(now(), "", "event " + std::to_string(events_ - 1) + ": " + what);
  };
  for (const Ask& ask : make_workload(shape_.workload, begins, mix(mix(options_.seed) + 1))) {
    if (!takes_part()) {
      continue;
    }
    told("request " + std::to_string(ask.id.value));
    if (ask.asynchronous) {
      loop_.at(ask.arrives, [this, ask] {
        clients_.note(ask);
        async_clients_.send(ask);
      });
      continue;
    }
    loop_.at(ask.arrives, [this, ask] { clients_.send(ask, kDoor); });
    if (ask.leaves != kNever) {
      loop_.at(ask.leaves, [this, id = ask.id] { clients_.leave(id); });
    }
  }
  for (const Fault& fault : plan_.faults) {
    if (takes_part()) {
      told("fault: " + to_string(fault.kind));
      loop_.at(begins + (fault.when - Instant()), [this, fault] { strike(fault); });
    }
  }
  for (const auto& [name, dial] : kFaultDials) {
    if (plan_.dials.*dial > 0 && !takes_part()) {
      plan_.dials.*dial = 0;
    } else if (plan_.dials.*dial > 0) {
      told(name);
    }
  }
  if (shape_.routers > 1) {
    clients_.on_connection_broken();  // Routers do not tell each other which requests they suspect.
  }
  faulty_ = true;
  run_until(begins + options_.scenario.load, [this] {
    check_routers();
    return false;
  });
  heal();
}

void SimWorld::finish() {
  const auto waiting = [this] { return clients_.waiting_count() + async_clients_.waiting_count(); };
  run_until(now() + kLivenessBound, [&] { return waiting() == 0; });
  invariants_.expect(waiting() == 0,
                     "every request has its end soon after the last fault, but not:",
                     clients_.list_waiting(), async_clients_.list_waiting());
  const SimClients::Counts& counts = clients_.counts();
  const SimAsyncClients::Counts& later = async_clients_.counts();
  const bool faultless = faultless_ && shape_.workload.killer == Kills::kNobody;
  invariants_.expect(
      !faultless ||
          counts.failed + counts.refused + counts.aborted + later.failed + later.refused == 0,
      "without faults every request is served, but not", counts.failed, counts.refused,
      counts.aborted, later.failed, later.refused);
  invariants_.expect(!plan_.only_slows() || shape_.workload.killer != Kills::kNobody ||
                         counts.failed + counts.aborted == 0,
                     "no request is lost because workers are slow or replaced, but", counts.failed,
                     counts.aborted);
  invariants_.expect(
      !plan_.has_only({&FaultWeights::poison}) || slow_watch_.poisoned_count() > 2 ||
          shape_.workload.killer != Kills::kNobody || counts.failed + counts.aborted == 0,
      "no request is lost because a hand-over fails, but", counts.failed, counts.aborted);
  // A fault may show its effect later: a frozen process that goes on is found dead.
  run_until(now() + kTcpGivesUp);
  run_until(now() + kHealsWithin, [this] { return well(); });
  expect_all_well();
  run_until(all_arrived_);
  run_until(now() + kCleanupBound);
  // A hang shows when a probe brings work, and the next process is probed again.
  run_until(now() + kHealsWithin, [this] { return well() && !watch_.probes(now()); });
  check_routers();
  // A health check of a worker that runs by hand may be under way.
  run_until(now() + seconds(1), [this] {
    return std::ranges::all_of(members_,
                               [](const auto& each) { return each.second->busy_with().empty(); });
  });
  expect_idle();
}

// The job ends and leaves its workers, and another one of the same specs goes on with them.
void SimWorld::next_job() {
  const auto warm = workers_now();
  launcher_->post([this] { job_->submit(launcher::StopAsked{0, true}); });
  run_until(now() + seconds(3), [this] { return finished_ > 0; });
  invariants_.expect(finished_ == 1, "an idle job ends at once though workers stay, but");
  finished_ = 0;
  take(ledger_, job());
  invariants_.expect(ledger_disk_.save(ledger_), "no other launcher has the ledger, but");
  merged_->keep_warm(std::chrono::minutes(1));
  run_until(now() + seconds(5), [this] { return merged_->left_warm(); });
  invariants_.expect(merged_->left_warm(), "all agents hear that the job is over, but");
  trace_.line(now(), "launcher", "leaves its workers warm");
  launcher_->die();
  http_.forget(*launcher_);
  scaling_.reset();
  stragglers_.reset();
  job_.reset();
  merged_.reset();
  run_until(now() + milliseconds(random_.below(10000)));
  next_launcher();
  run_until(now() + kReadyWithin, [this] { return well(); });
  expect_all_well();
  for (const auto& [name, worker] : workers_now()) {
    const auto before = warm.find(name);
    invariants_.expect(before == warm.end() || before->second.role != worker.role ||
                           before->second.incarnation == worker.incarnation,
                       "the next job has the workers of the last one, but not", name);
  }
}

std::map<std::string, launcher::ProcessRecord> SimWorld::workers_now() const {
  std::map<std::string, launcher::ProcessRecord> workers;
  for (const launcher::Process& process : job().processes()) {
    if (process.is_worker()) {
      workers.emplace(process.name, process);
    }
  }
  return workers;
}

void SimWorld::stop_job() {
  if (hands_) {
    hands_->stop();
  } else {
    launcher_->post([this] { job_->submit(launcher::StopAsked{0}); });
  }
  run_until(now() + seconds(3), [this] {
    return (hands_ || finished_ > 0) && machines_.running().empty() &&
           machines_.followers().empty();
  });
  invariants_.expect(hands_ || finished_ == 1, "an idle job stops at once, but");
  invariants_.expect(machines_.running().empty() && machines_.followers().empty(),
                     "nothing outlives the job");
  if (agents_) {
    rollout_.reset();
    scaling_.reset();
    stragglers_.reset();
    job_.reset();
    merged_.reset();
    run_until(now() + agents_->outlives(), [this] { return agents_->idle(); });
    invariants_.expect(agents_->idle(), "agents end their sessions with the launcher, but");
  }
}

void SimWorld::expect_idle() {
  for (const auto& [who, member] : members_) {
    const std::string busy = member->busy_with();
    invariants_.expect(busy.empty(), "nothing is left after the last request, but at",
                       member->process().name(), busy);
  }
}

}  // namespace

RunResult simulate(const RunOptions& options) { return SimWorld(options).run(); }

}  // namespace pdjob::simulation
