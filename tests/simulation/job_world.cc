#include "tests/simulation/job_world.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "common/random.h"
#include "net/control/member_list.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_loop.h"

namespace pdjob::simulation {

using launcher::Effect;
using launcher::Event;
using launcher::Incarnation;
using launcher::JobState;
using launcher::Process;
using launcher::ProcessState;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr Duration kFaultsLast = std::chrono::minutes(3);
// Enough for all that may be on its way: a hang is noticed, two back-offs, a start, a probe.
constexpr Duration kHealsWithin = std::chrono::minutes(4);

const launcher::JobTiming kTiming{.start_timeout = seconds(40),
                                  .stop_timeout = seconds(10),
                                  .heartbeat_timeout = seconds(3),
                                  .hang_timeout = seconds(10),
                                  .progress_timeout = seconds(20),
                                  .restart = {.backoff_max = seconds(5), .attempts = 3}};

class JobWorld final : launcher::Cluster::Handler {
 public:
  explicit JobWorld(const JobRunOptions& options)
      : options_(options),
        random_(mix(options.seed)),
        trace_(options.print),
        cluster_(loop_, mix(options.seed + 1)) {
    cluster_.report_to(*this);
    cluster_.began = [this](const SimCluster::Order& order) { begin(order); };
    cluster_.signalled = [this](Incarnation who, launcher::Signal what) { signalled(who, what); };
    for (uint64_t i = 0; i < 1 + random_.below(4); ++i) {
      nodes_.push_back({.name = "n" + std::to_string(i),
                        .host = "10.0.0." + std::to_string(i),
                        .cores = static_cast<uint32_t>(1 + random_.below(8)),
                        .gpus = {"0", "1"}});
      cluster_.join(nodes_.back());
    }
    job_.emplace(plan(), kTiming, "n",
                 launcher::JobSetting{.nodes = nodes_, .foreign_router = random_.chance(0.2)});
  }

  JobRunResult run() {
    submit(launcher::Started{});
    faults_ = random_.chance(0.8);
    const Instant calm_at = loop_.now() + kFaultsLast;
    cause_trouble(calm_at);
    run_until(calm_at);
    faults_ = false;
    heal();
    if (job_->state() != JobState::kDraining && job_->state() != JobState::kDone) {
      run_until(loop_.now() + kHealsWithin);
      expect_all_well();
    }
    stop();
    result_.trace_hash = trace_.hash();
    result_.trace_lines = trace_.lines();
    return result_;
  }

 private:
  // One incarnation.
  struct Sim {
    SimCluster::Order order;
    bool acknowledged = false;
    bool never_registers = false;
    bool fails_probes = false;
    bool silent = false;
    bool stands_still = false;
    bool draining = false;
    Instant began{};
    Instant still_since{};
    net::MemberList list;  // Of a router.
  };

  std::vector<launcher::ProcessPlan> plan() {
    std::vector<launcher::ProcessPlan> plan;
    const auto add = [&](const std::string& kind, net::Role role, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        plan.push_back({.name = kind + std::to_string(i),
                        .role = role,
                        .model = role == net::Role::kRouter ? "" : "m",
                        .demand = {.cores = 1, .gpus = random_.chance(0.3) ? 1U : 0U}});
        planned_.insert(plan.back().name);
      }
    };
    add("router-", net::Role::kRouter, 1 + random_.below(2));
    add("prefill-", net::Role::kPrefill, 1 + random_.below(4));
    add("decode-", net::Role::kDecode, 1 + random_.below(4));
    return plan;
  }

  bool broken() const { return !result_.violation.empty(); }
  void violate(const std::string& what) {
    if (!broken()) {
      result_.violation = what;
      trace_.line(loop_.now(), "VIOL", what);
    }
  }

  void run_until(Instant when) {
    while (!broken() && loop_.run_next(when)) {
    }
  }

  // --- the launcher's shell

  void on_cluster_event(const launcher::ClusterEvent& event) override {
    std::visit(
        [this](const auto& body) {
          if constexpr (std::is_constructible_v<Event, decltype(body)>) {
            submit(body);
          }
        },
        event);
  }

  void submit(Event event) {
    if (const auto* failed = std::get_if<launcher::ProbeFailed>(&event)) {
      trace_.line(loop_.now(), "failed", failed->reason);
    }
    if (broken() || (options_.event && !options_.event(event))) {
      return;
    }
    std::vector<Effect> effects;
    job_->step(event, loop_.now(), effects);
    if (options_.effects) {
      options_.effects(effects);
    }
    trace_.line(loop_.now(), "event", std::to_string(event.index()));
    for (const Effect& effect : effects) {
      std::visit([this](const auto& body) { carry_out(body); }, effect);
    }
    check();
    const Instant wake = job_->next_wakeup();
    if (wake <= loop_.now() && std::holds_alternative<launcher::TimePassed>(event)) {
      violate("the job wants to be woken at once, again and again");
    } else if (wake != kNever) {
      loop_.at(wake, [this, wake] {
        if (job_->next_wakeup() == wake) {
          submit(launcher::TimePassed{});
        }
      });
    }
  }

  void carry_out(const launcher::Spawn& effect) {
    trace_.line(loop_.now(), "spawn", effect.engine_id + " on " + effect.place.node);
    ++result_.spawns;
    for (const auto& [incarnation, order] : cluster_.running()) {
      if (order.spec.name == effect.name) {
        violate(effect.name + " is started while it runs");
      }
    }
    if (retired_.contains(effect.name)) {
      violate(effect.name + " is started after it was retired");
    }
    launcher::SpawnOrder order{.node = effect.place.node, .incarnation = effect.incarnation};
    order.spec.name = effect.name;
    order.spec.role = effect.role;
    order.spec.model = effect.model;
    order.spec.engine_id = effect.engine_id;
    cluster_.spawn(order);
  }
  void carry_out(const launcher::SendSignal& effect) {
    trace_.line(loop_.now(), "signal", to_string(effect.signal));
    cluster_.signal(effect.incarnation, effect.signal);
  }
  void carry_out(const launcher::Send& effect) {
    trace_.line(loop_.now(), "send", effect.peer);
    Sim* const to = find(effect.peer);
    if (to == nullptr || lost()) {
      return;
    }
    loop_.after(delay(), [this, who = to->order.incarnation, message = effect.message] {
      if (Sim* sim = find(who); sim != nullptr && !sim->silent) {
        std::visit([&](const auto& body) { take(*sim, body); }, message);
      }
    });
  }
  void carry_out(const launcher::Probe& effect) {
    trace_.line(loop_.now(), "probe", effect.router + ">" + effect.prefill + ">" + effect.decode);
    ++result_.probes;
    const Duration takes = random_.chance(0.1) ? seconds(5) : milliseconds(1 + random_.below(300));
    loop_.after(takes, [this, effect] { answer(effect); });
  }
  void carry_out(const launcher::ReportReady&) { trace_.line(loop_.now(), "ready", ""); }
  void carry_out(const launcher::CloseDoors&) {}
  void carry_out(const launcher::Finish& effect) {
    trace_.line(loop_.now(), "finish", effect.reason);
    finished_ += 1;
  }

  void answer(const launcher::Probe& probe) {
    std::vector<Sim*> through;
    for (const std::string& name : {probe.router, probe.prefill, probe.decode}) {
      if (!name.empty()) {
        through.push_back(find(name));
      }
    }
    const bool good = std::ranges::all_of(through, [](const Sim* sim) {
      return sim != nullptr && sim->acknowledged && !sim->fails_probes && !sim->silent;
    });
    const Sim* const router = probe.router.empty() ? nullptr : find(probe.router);
    if (router != nullptr && !probe.decode.empty()) {
      for (const std::string& name : {probe.prefill, probe.decode}) {
        const auto& known = router->list.workers();
        if (good && !name.empty() &&
            std::ranges::find(known, name, &net::WorkerEntry::name) == known.end()) {
          submit(launcher::ProbeFailed{probe.probe, "the router does not know " + name});
          return;
        }
      }
    }
    if (!good) {
      submit(launcher::ProbeFailed{probe.probe, "no answer"});
      return;
    }
    for (const Sim* sim : through) {
      proved_.insert(sim->order.spec.engine_id);
    }
    submit(launcher::ProbeSucceeded{probe.probe, 4096});
  }

  // --- processes

  void begin(const SimCluster::Order& order) {
    Sim& sim = sims_[order.incarnation];
    sim.order = order;
    sim.began = loop_.now();
    sim.never_registers = faults_ && random_.chance(0.05);
    sim.fails_probes = faults_ && random_.chance(0.1);
    loop_.after(milliseconds(50 + random_.below(3000)), [this, who = order.incarnation] {
      if (Sim* one = find(who); one != nullptr && !one->never_registers) {
        send_registered(who);
        beat(who);
      }
    });
  }
  void send_registered(Incarnation who) {
    Sim* const sim = find(who);
    if (sim == nullptr || sim->acknowledged) {
      return;
    }
    say(*sim, net::Registered{.worker = {.engine_id = sim->order.spec.engine_id, .port = 1}});
    loop_.after(milliseconds(500), [this, who] { send_registered(who); });
  }
  void beat(Incarnation who) {
    Sim* const sim = find(who);
    if (sim == nullptr) {
      return;
    }
    net::HeartbeatSent message{.engine_id = sim->order.spec.engine_id};
    if (sim->stands_still) {
      message.load.standstill_ms = static_cast<uint64_t>(
          std::chrono::duration_cast<milliseconds>(loop_.now() - sim->still_since).count());
    }
    say(*sim, message);
    loop_.after(milliseconds(500), [this, who] { beat(who); });
  }
  void say(const Sim& sim, net::Message message) {
    if (sim.silent || lost()) {
      return;
    }
    loop_.after(delay(), [this, who = sim.order.spec.name, message = std::move(message)] {
      submit(launcher::MessageArrived{who, message});
    });
  }

  void take(Sim& sim, const net::Acknowledge&) { sim.acknowledged = true; }
  void take(Sim& sim, const net::Membership& told) {
    if (sim.list.take(told)) {
      check_standings(sim);
      say(sim, net::MembershipApplied{sim.order.spec.engine_id, told.version});
    }
  }
  void take(Sim& sim, const net::Drain&) {
    sim.draining = true;
    loop_.after(milliseconds(random_.below(4000)), [this, who = sim.order.incarnation] {
      if (const Sim* one = find(who)) {
        say(*one, net::Drained{});
        loop_.after(milliseconds(500), [this, who] { cluster_.end(who, "exit code 0", false); });
      }
    });
  }
  void take(Sim& sim, const net::Shutdown&) {
    cluster_.end(sim.order.incarnation, "exit code 0", false);
  }
  template <class Other>
  void take(Sim&, const Other&) {}

  void signalled(Incarnation who, launcher::Signal signal) {
    if (signal == launcher::Signal::kTerminate) {
      loop_.after(delay(), [this, who] { cluster_.end(who, "exit code 0", false); });
    }
  }

  // --- faults

  bool lost() { return faults_ && random_.chance(0.05); }
  Duration delay() { return milliseconds(random_.below(20)); }

  void cause_trouble(Instant until) {
    if (loop_.now() >= until || broken()) {
      return;
    }
    if (faults_) {
      one_trouble();
    }
    reorganise();
    loop_.after(milliseconds(200 + random_.below(6000)), [this, until] { cause_trouble(until); });
  }

  void one_trouble() {
    if (random_.chance(0.15)) {
      const launcher::Node& node = nodes_[random_.below(nodes_.size())];
      trace_.line(loop_.now(), "lose", node.name);
      result_.nodes_lost += 1;
      cluster_.lose(node.name);
      loop_.after(milliseconds(random_.below(20000)), [this, node] { cluster_.join(node); });
      return;
    }
    if (cluster_.running().empty()) {
      return;
    }
    auto victim = cluster_.running().begin();
    std::advance(victim, static_cast<ptrdiff_t>(random_.below(cluster_.running().size())));
    Sim& sim = sims_.at(victim->first);
    trace_.line(loop_.now(), "harm", sim.order.spec.engine_id);
    switch (random_.below(4)) {
      case 0:
        cluster_.end(victim->first, "signal 9 (Killed)", false);
        break;
      case 1:
        cluster_.end(victim->first, "signal 11 (Segmentation fault)", true);
        break;
      case 2:
        sim.silent = true;
        loop_.after(milliseconds(random_.below(12000)), [this, who = victim->first] {
          if (Sim* one = find(who)) {
            one->silent = false;
          }
        });
        break;
      default:
        if (sim.order.spec.role != net::Role::kRouter) {
          sim.stands_still = true;
          sim.still_since = loop_.now();
        }
    }
  }

  // Orders, as an autoscaler gives them.
  void reorganise() {
    const bool runs = job_->state() == JobState::kReady;
    if (!runs || !random_.chance(0.2)) {
      return;
    }
    const auto of_role = [&](net::Role role) {
      std::vector<std::string> names;
      for (const Process& process : job_->processes()) {
        if (process.role == role && process.fate == launcher::Fate::kRestart) {
          names.push_back(process.name);
        }
      }
      return names;
    };
    const net::Role role = random_.chance(0.5) ? net::Role::kPrefill : net::Role::kDecode;
    const net::Role other = role == net::Role::kPrefill ? net::Role::kDecode : net::Role::kPrefill;
    const std::vector<std::string> names = of_role(role);
    if (names.size() < 2 || random_.chance(0.4)) {
      const std::string name = "more-" + std::to_string(++added_);
      trace_.line(loop_.now(), "add", name);
      planned_.insert(name);
      submit(launcher::ProcessAdded{
          {.name = name, .role = role, .model = "m", .demand = {.cores = 1}}});
    } else if (random_.chance(0.5)) {
      trace_.line(loop_.now(), "retire", names.front());
      result_.retired += 1;
      planned_.erase(names.front());
      submit(launcher::RetireAsked{names.front()});
    } else {
      trace_.line(loop_.now(), "change", names.back());
      roles_[names.back()] = other;
      submit(launcher::RoleChangeAsked{names.back(), other});
    }
  }

  void heal() {
    for (const launcher::Node& node : nodes_) {
      if (!cluster_.has(node.name)) {
        cluster_.join(node);
      }
    }
    for (auto& [incarnation, sim] : sims_) {
      sim.silent = sim.fails_probes = false;
    }
  }

  // --- what must hold

  // After each step.
  void check() {
    for (const auto& [incarnation, order] : cluster_.running()) {
      if (gone_.contains(order.spec.name)) {
        violate(order.spec.name + " runs after the job forgot it");
      }
    }
    for (const std::string& name : seen_) {
      if (job_->find(name) == nullptr && !gone_.contains(name) && !planned_.contains(name)) {
        gone_.insert(name);
        retired_.insert(name);
      }
    }
    for (const Process& process : job_->processes()) {
      seen_.insert(process.name);
      if (process.state == ProcessState::kReady && !proved_.contains(process.engine_id)) {
        violate(process.name + " is ready, and no probe went through it");
      }
    }
  }

  // Clients' requests go where a router thinks that a worker serves.
  void check_standings(const Sim& router) {
    for (const net::WorkerEntry& worker : router.list.workers()) {
      if (worker.standing == net::Standing::kServing && !proved_.contains(worker.engine_id)) {
        violate(worker.name + " gets clients' requests, and no probe went through it");
      }
    }
  }

  void expect_all_well() {
    if (broken()) {
      return;
    }
    if (job_->state() != JobState::kReady) {
      violate("the job is not ready: " + job_->waiting_for());
    }
    for (const Process& process : job_->processes()) {
      if (process.state != ProcessState::kReady) {
        violate(process.name + " is " + to_string(process.state) + " after all faults ended");
      }
      const auto role = roles_.find(process.name);
      if (role != roles_.end() && role->second != process.role) {
        violate(process.name + " has not changed its role");
      }
    }
    for (const std::string& name : planned_) {
      if (job_->find(name) == nullptr) {
        violate(name + " is missing");
      }
    }
    std::set<std::string> serving;
    for (const auto& [incarnation, order] : cluster_.running()) {
      if (order.spec.role != net::Role::kRouter) {
        serving.insert(order.spec.engine_id);
      }
    }
    for (const auto& [incarnation, order] : cluster_.running()) {
      if (order.spec.role == net::Role::kRouter) {
        std::set<std::string> known;
        for (const net::WorkerEntry& worker : sims_.at(incarnation).list.serving()) {
          known.insert(worker.engine_id);
        }
        if (known != serving) {
          violate(order.spec.name + " does not know who serves");
        }
      }
    }
  }

  void stop() {
    submit(launcher::StopAsked{0});
    run_until(loop_.now() + kTiming.stop_timeout + seconds(5));
    if (job_->state() != JobState::kDone || finished_ != 1) {
      violate("the job has not stopped");
    }
    if (!cluster_.running().empty()) {
      violate(cluster_.running().begin()->second.spec.name + " outlives the job");
    }
  }

  Sim* find(Incarnation incarnation) {
    return cluster_.runs(incarnation) ? &sims_.at(incarnation) : nullptr;
  }
  Sim* find(const std::string& name) {
    for (const auto& [incarnation, order] : cluster_.running()) {
      if (order.spec.name == name) {
        return &sims_.at(incarnation);
      }
    }
    return nullptr;
  }

  const JobRunOptions& options_;
  Random random_;
  SimTrace trace_;
  SimLoop loop_;
  SimCluster cluster_;
  std::vector<launcher::Node> nodes_;
  std::optional<launcher::Job> job_;
  std::map<Incarnation, Sim> sims_;
  std::set<std::string> proved_;  // Engine ids.
  std::set<std::string> planned_;
  std::set<std::string> seen_;
  std::set<std::string> gone_;
  std::set<std::string> retired_;
  std::map<std::string, net::Role> roles_;  // As asked for.
  uint64_t added_ = 0;
  uint64_t finished_ = 0;
  bool faults_ = false;
  JobRunResult result_;
};

}  // namespace

JobRunResult simulate_job(const JobRunOptions& options) { return JobWorld(options).run(); }

}  // namespace pdjob::simulation
