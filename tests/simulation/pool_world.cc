#include "tests/simulation/pool_world.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/parse_number.h"
#include "common/random.h"
#include "launcher/pool/keeper.h"
#include "launcher/pool/pool_ledger.h"
#include "launcher/pool/pool_specs.h"
#include "net/loop/core_runner.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_agents.h"

namespace pdjob::simulation {
namespace {

using namespace launcher;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;
using std::chrono::seconds;

using Words = std::vector<std::string>;

constexpr const char* kPool = "pool";
constexpr const char* kKeeperHost = "10.0.0.100";
constexpr Duration kLease = seconds(2);
constexpr Duration kOrphan = seconds(20);
constexpr Duration kFaultsLast = seconds(200);
// A launcher is killed after two minutes, a lost one moves after the orphan timeout, batches take
// turns.
constexpr Duration kConvergesWithin = seconds(1500);

// Takes it from the first GPU with so much left; false: there is none.
bool take_gpu(Node& node, uint32_t percent, Share& share) {
  const auto found = std::ranges::find_if(node.gpus, [&](const std::string& each) {
    return percent_of(node.gpu_parts, each) >= percent;
  });
  if (found == node.gpus.end()) {
    return false;
  }
  const std::string& gpu = *found;
  const bool new_here = std::ranges::find(share.gpus, gpu) == share.gpus.end();
  const uint32_t all = percent + (new_here ? 0 : percent_of(share.gpu_parts, gpu));
  const uint32_t left = percent_of(node.gpu_parts, gpu) - percent;
  if (new_here) {
    share.gpus.push_back(gpu);
  }
  share.gpu_parts[gpu] = all;
  node.gpu_parts[gpu] = left;
  if (all == kWholeGpu) {
    share.gpu_parts.erase(gpu);
  }
  if (left == 0) {
    node.gpu_parts.erase(gpu);
    node.gpus.erase(found);
  }
  return true;
}

// "4 0:50 1:100": its cores, and the percent of each GPU.
std::string work_of(const Share& share) {
  std::string text = std::to_string(share.cores);
  for (const std::string& gpu : share.gpus) {
    text += " " + gpu + ":" + std::to_string(percent_of(share.gpu_parts, gpu));
  }
  return text;
}

struct Wish {
  uint32_t cores = 0;
  uint32_t parts = 0;
  uint32_t gpu_percent = 0;
};
// "2x3": three parts of two cores each, wherever they fit. "2x3@50": each with half of a GPU, too.
Wish wish_of(const PoolJobOrder& order) {
  const size_t x = order.text.find('x');
  const size_t at = std::min(order.text.find('@'), order.text.size());
  return {.cores = *parse_number<uint32_t>(order.text.substr(0, x)),
          .parts = *parse_number<uint32_t>(order.text.substr(x + 1, at - x - 1)),
          .gpu_percent =
              at == order.text.size() ? 0 : *parse_number<uint32_t>(order.text.substr(at + 1))};
}
uint64_t cores_of(const PoolJobOrder& order) {
  const Wish wish = wish_of(order);
  return uint64_t{wish.cores} * wish.parts;
}

Result<std::vector<Share>> place(const PoolJobOrder& order, std::vector<Node> free) {
  auto [cores, parts, percent] = wish_of(order);
  std::vector<Share> shares;
  for (Node& node : free) {
    Share share{.node = node.name};
    for (; parts > 0 && node.cores >= cores; --parts) {
      if (percent > 0 && !take_gpu(node, percent, share)) {
        break;
      }
      node.cores -= cores;
      share.cores += cores;
    }
    if (share.cores > 0) {
      shares.push_back(share);
    }
  }
  if (parts > 0) {
    return Error{ErrorCode::kUnavailable, "no room"};
  }
  return shares;
}

// One life of a keeper. What it saves outlives it.
class SimKeeper final : Cluster::Handler {
 public:
  struct Disk {
    std::string ledger;
    bool dies_after_write = false;  // At its next one.
    uint64_t preempted = 0;         // Jobs, by all keepers.
    uint64_t warm = 0;              // Jobs that began on warm workers.
  };
  SimKeeper(SimLoop& loop, SimAgents& agents, Disk& disk, SimTrace& trace, Invariants& invariants,
            uint64_t seed)
      : disk_(disk),
        trace_(trace),
        invariants_(invariants),
        process_("keeper", {.loop = loop, .seed = seed, .host = kKeeperHost}),
        core_({.first_port = 7800, .last_port = 7803, .orphan_timeout = kOrphan, .lease = kLease},
              place, next_ledger(disk), loop.now()),
        runner_(process_, core_, *this) {
    save();
    cluster_ = agents.serve(kPool, process_, core_.ledger().keeper);
    cluster_->report_to(*this);
    submit(TimePassed{});
  }
  SimKeeper(const SimKeeper&) = delete;
  SimKeeper& operator=(const SimKeeper&) = delete;
  ~SimKeeper() { process_.die(); }

  void submit(KeeperEvent event) {
    if (process_.alive() && !process_.stopped()) {
      runner_.submit(std::move(event));
    }
  }
  bool lives() const { return process_.alive(); }
  SimProcess& process() { return process_; }
  const Keeper& core() const { return core_; }

  using Runner = net::CoreRunner<SimKeeper, Keeper, KeeperEvent, KeeperEffect>;
  friend Runner;

 private:
  static PoolLedger next_ledger(const Disk& disk) {
    PoolLedger ledger;
    if (!disk.ledger.empty()) {
      auto read = decode_pool_ledger(disk.ledger);
      PDJOB_CHECK(read, read.error().message);
      ledger = *std::move(read);
    }
    ++ledger.keeper;
    return ledger;
  }
  void save() {
    std::string bytes = encode(core_.ledger());
    if (bytes != disk_.ledger) {
      disk_.ledger = std::move(bytes);
      if (std::exchange(disk_.dies_after_write, false)) {
        trace_.line(process_.now(), "keeper", "dies behind a write");
        process_.die();
      }
    }
  }

  void on_cluster_event(const ClusterEvent& event) override {
    std::visit([this](const auto& body) { take(body); }, event);
  }
  void take(const DoorOpened& /*event*/) {}
  void take(const DoorFailed& /*event*/) {}
  void take(const ProcessSeen& /*event*/) {}
  void take(const LogAnswered& /*event*/) {}
  template <class Event>
  void take(const Event& event) {
    submit(event);
  }

  void stepped(const KeeperEvent& /*event*/, const std::vector<KeeperEffect>& /*effects*/) {
    if (lives()) {
      save();
    }
  }
  void carried_out(const KeeperEvent& /*event*/) {}
  void carry_out(const StartLauncher& effect) {
    const PoolJob* const job = core_.job(effect.job);
    invariants_.expect(job->cores() == cores_of(job->order), "a job has all that it needs, but",
                       job->order.name, "wants", job->order.text, "and has", job->cores(), "cores");
    spawn(job->launcher, "launcher-" + job->order.name, job->order.batch ? "batch" : "serve");
  }
  void carry_out(const StartShare& effect) {
    const PoolJob* const job = core_.job(effect.job);
    const auto held = std::ranges::find(job->shares, effect.share, &HeldShare::number);
    spawn(held->agent, "share-" + job->order.name, work_of(held->share));
  }
  void spawn(const PoolProcess& process, const std::string& name, const std::string& work) {
    if (lives()) {
      cluster_->spawn({.node = process.node,
                       .incarnation = process.incarnation,
                       .spec = {.name = name, .work = work}});
    }
  }
  void carry_out(const EndProcess& effect) {
    if (lives()) {
      cluster_->signal(effect.node, effect.incarnation, effect.signal);
    }
  }
  void carry_out(const SayOfPool& effect) {
    trace_.line(process_.now(), "keeper", effect.text);
    disk_.preempted += effect.text.find("makes room") != std::string::npos ? 1 : 0;
    disk_.warm += effect.text.find("with the warm workers") != std::string::npos ? 1 : 0;
  }

  Disk& disk_;
  SimTrace& trace_;
  Invariants& invariants_;
  SimProcess process_;
  Keeper core_;
  Runner runner_;
  std::unique_ptr<Cluster> cluster_;
};

class PoolWorld {
 public:
  explicit PoolWorld(const SimCall& call)
      : call_(call),
        random_(call.seed),
        trace_(call.print),
        links_(loop_, cuts_, random_.next()),
        agents_(loop_, machines_, links_,
                {.lease = kLease, .orphan_timeout = kOrphan, .owner = kPool}, random_.next(),
                [this](const std::string& who, const std::string& what) {
                  trace_.line(loop_.now(), who, what);
                }) {
    machines_.began = [this](const SpawnOrder& order) { began(order); };
    machines_.gone = [this](Incarnation incarnation) { deaf_.erase(incarnation); };
    machines_.terminated = [this](Incarnation incarnation) { terminated(incarnation); };
    machines_.door_changed = [](const Door&, bool) {};
    machines_.signs_of = [](Incarnation) { return VitalSigns{}; };
    machines_.spawn_fails = [this] { return loop_.now() < spawns_fail_until_; };
    for (const auto& [name, cores] : {std::pair("a", 8U), std::pair("b", 4U), std::pair("c", 4U)}) {
      const Node node{.name = std::string(kPool) + "/" + name,
                      .host = std::string("10.0.0.") + name,
                      .cores = cores,
                      .gpus = name[0] == 'a'   ? Words{"0", "1"}
                              : name[0] == 'b' ? Words{"0"}
                                               : Words{},
                      .cluster = kPool};
      nodes_.push_back(node);
      agents_.add(node);
    }
    start_keeper();
  }

  SimRun run() {
    draw_events();
    run_until(loop_.now() + kFaultsLast, [] { return false; });
    end_faults();
    run_until(loop_.now() + kConvergesWithin, [this] { return is_settled(); });
    invariants_.expect(is_settled(), "each job runs, has ended or does not fit, but", states());
    cancel_all();
    run_until(loop_.now() + seconds(300), [this] { return is_empty(); });
    invariants_.expect(is_empty(), "a pool whose jobs are cancelled is empty, but", states());
    return {.violation = invariants_.violation(),
            .trace_hash = trace_.hash(),
            .trace_lines = trace_.lines(),
            .events = events_,
            .counts = {{"starts", starts_},
                       {"keepers", keepers_},
                       {"preempted", disk_.preempted},
                       {"began warm", disk_.warm}}};
  }

 private:
  void start_keeper() {
    ++keepers_;
    trace_.line(loop_.now(), "keeper", "starts");
    keeper_.reset();  // Only then can another one listen.
    keeper_ =
        std::make_unique<SimKeeper>(loop_, agents_, disk_, trace_, invariants_, random_.next());
  }

  // --- the processes of jobs
  void began(const SpawnOrder& order) {
    ++starts_;
    trace_.line(loop_.now(), order.node,
                order.spec.name + " begins as " + std::to_string(order.incarnation.value));
    check_shares(order.node);
    // An agent that stands still cannot end what runs beyond its time. It does so when it wakes up.
    const auto same = std::ranges::count_if(machines_.running(), [&](const auto& each) {
      const Instant awake = agents_.awake_since(each.second.node);
      return each.second.spec.name == order.spec.name && awake != kNever &&
             awake + seconds(1) <= loop_.now();
    });
    if (order.spec.name.starts_with("launcher-")) {
      invariants_.expect(same <= 1, "a job has one launcher, but", order.spec.name, "runs", same);
    }
    if (order.spec.work == "batch") {  // It ends by itself.
      const bool fails = random_.chance(0.1);
      loop_.after(milliseconds(3000 + random_.below(40'000)), [this, order, fails] {
        machines_.end(order.incarnation, fails ? "exit code 1" : "exit code 0", false);
      });
    }
    if (random_.chance(0.1)) {
      deaf_.insert(order.incarnation);  // To SIGTERM.
    }
  }
  void check_shares(const std::string& node) {
    const auto at = std::ranges::find(nodes_, node, &Node::name);
    uint32_t cores = 0;
    std::map<std::string, uint32_t> gpus;  // Percent.
    for (const auto& [incarnation, order] : machines_.running()) {
      if (order.node != node || !order.spec.name.starts_with("share-")) {
        continue;
      }
      std::istringstream work(order.spec.work);
      uint32_t own = 0;
      work >> own;
      cores += own;
      for (std::string gpu; work >> gpu;) {
        const size_t colon = gpu.find(':');
        gpus[gpu.substr(0, colon)] += *parse_number<uint32_t>(gpu.substr(colon + 1));
      }
    }
    invariants_.expect(cores <= at->cores, "no core is promised twice, but", node, "has", at->cores,
                       "and shares of", cores);
    for (const auto& [gpu, percent] : gpus) {
      invariants_.expect(percent <= kWholeGpu && std::ranges::count(at->gpus, gpu) == 1,
                         "no part of a GPU is promised twice, but", node, "has shares of", percent,
                         "percent of", gpu);
    }
  }
  void terminated(Incarnation incarnation) {
    if (!deaf_.contains(incarnation)) {
      loop_.after(milliseconds(random_.below(3000)),
                  [this, incarnation] { machines_.end(incarnation, "exit code 0", false); });
    }
  }

  // --- what happens
  void draw_events() {
    for (uint64_t jobs = 3 + random_.below(6); jobs > 0; --jobs) {
      draw("a job comes", &PoolWorld::job_comes);
    }
    for (uint64_t more = random_.below(5); more > 0; --more) {
      draw("a batch follows", &PoolWorld::batch_follows);
    }
    for (uint64_t faults = random_.below(14); faults > 0; --faults) {
      const auto& [what, strike] = kFaults.at(random_.below(kFaults.size()));
      draw(what, strike);
    }
  }
  using Strike = void (PoolWorld::*)(uint64_t target, Duration duration);
  void draw(const char* what, Strike strike) {
    const Instant when = loop_.now() + milliseconds(random_.below(kFaultsLast / milliseconds(1)));
    const uint64_t target = random_.next();
    const Duration duration = milliseconds(random_.below(random_.chance(0.3) ? 60'000 : 6000));
    const uint32_t number = events_++;
    if (!call_.only || call_.only->contains(number)) {
      loop_.at(when, [this, number, what, strike, target, duration] {
        trace_.line(loop_.now(), "", "event " + std::to_string(number) + ": " + what);
        (this->*strike)(target, duration);
      });
    }
  }
  const std::string& node_of(uint64_t target) const { return nodes_[target % nodes_.size()].name; }

  void job_comes(uint64_t target, Duration /*duration*/) {
    Random random(target);
    PoolJobOrder order{
        .name = "job" + std::to_string(jobs_++),
        .text = std::to_string(1 + random.below(4)) + "x" + std::to_string(1 + random.below(5)),
        .queue = random.chance(0.5) ? "one" : "other",
        .priority = static_cast<int64_t>(random.below(3)),
        .batch = random.chance(0.5)};
    if (random.chance(0.5)) {
      order.text += std::array{"@30", "@50", "@100"}.at(random.below(3));
    }
    order.priority += order.batch ? 0 : 2;
    order.door = random.chance(0.3) ? 8000 : 0;
    if (order.batch && random.chance(0.7)) {
      order.keep = milliseconds(5000 + random.below(90'000));
      order.workers = order.text;
      last_kept_ = order;
    }
    keeper_->submit(JobSubmitted{order});
  }
  // The next one of its name, maybe with other workers.
  void batch_follows(uint64_t target, Duration /*duration*/) {
    if (!last_kept_) {
      return;
    }
    if (target % 5 == 0) {
      last_kept_->text = last_kept_->workers = std::to_string(1 + target % 3) + "x2";
    }
    keeper_->submit(JobSubmitted{*last_kept_});
  }
  void job_is_cancelled(uint64_t target, Duration /*duration*/) {
    keeper_->submit(JobCancelled{"job" + std::to_string(target % (jobs_ + 1))});
  }
  void quota_is_set(uint64_t target, Duration /*duration*/) {
    keeper_->submit(QuotaSet{{.queue = "one", .cores = target % 10}});
  }
  void process_dies(uint64_t target, Duration /*duration*/) {
    if (const auto& running = machines_.running(); !running.empty()) {
      const auto at = std::next(running.begin(), static_cast<ptrdiff_t>(target % running.size()));
      machines_.end(at->first, "signal 9 (Killed)", false);
    }
  }
  void keeper_is_killed(uint64_t /*target*/, Duration duration) {
    keeper_->process().die();
    loop_.after(duration, [this] { revive_keeper(); });
  }
  void keeper_dies_behind_a_write(uint64_t /*target*/, Duration duration) {
    disk_.dies_after_write = true;
    loop_.after(duration, [this] { revive_keeper(); });
  }
  void revive_keeper() {
    if (!keeper_->lives()) {
      start_keeper();
    }
  }
  void keeper_stands_still(uint64_t /*target*/, Duration duration) {
    if (!keeper_->process().stopped()) {
      keeper_->process().stop();
      loop_.after(duration, [this, keeper = keeper_.get()] {
        if (keeper == keeper_.get() && keeper->process().stopped()) {
          keeper->process().go_on();
        }
      });
    }
  }
  void agent_dies(uint64_t target, Duration duration) {
    agents_.kill(node_of(target));
    loop_.after(duration, [this, target] { agents_.revive(node_of(target)); });
  }
  void machine_dies(uint64_t target, Duration duration) {
    agents_.lose_power(node_of(target));
    loop_.after(duration, [this, target] { agents_.revive(node_of(target)); });
  }
  void agent_stands_still(uint64_t target, Duration duration) {
    agents_.freeze(node_of(target), duration);
  }
  void machine_is_cut_off(uint64_t target, Duration duration) {
    links_.cut(kKeeperHost, nodes_[target % nodes_.size()].host, duration);
  }
  void connection_breaks(uint64_t /*target*/, Duration /*duration*/) { links_.break_one(); }
  void spawns_fail(uint64_t /*target*/, Duration duration) {
    spawns_fail_until_ = loop_.now() + duration;
  }

  static constexpr std::array<std::pair<const char*, Strike>, 12> kFaults = {
      {{"a job is cancelled", &PoolWorld::job_is_cancelled},
       {"a quota is set", &PoolWorld::quota_is_set},
       {"a process dies", &PoolWorld::process_dies},
       {"the keeper is killed", &PoolWorld::keeper_is_killed},
       {"the keeper dies behind a write", &PoolWorld::keeper_dies_behind_a_write},
       {"the keeper stands still", &PoolWorld::keeper_stands_still},
       {"an agent dies", &PoolWorld::agent_dies},
       {"a machine dies", &PoolWorld::machine_dies},
       {"an agent stands still", &PoolWorld::agent_stands_still},
       {"a machine is cut off", &PoolWorld::machine_is_cut_off},
       {"a connection breaks", &PoolWorld::connection_breaks},
       {"spawns fail", &PoolWorld::spawns_fail}}};

  // --- the end
  void end_faults() {
    disk_.dies_after_write = false;
    cuts_.heal();
    agents_.go_on();
    for (const Node& node : nodes_) {
      agents_.revive(node.name);
    }
    if (keeper_->process().stopped()) {
      keeper_->process().go_on();
    }
    revive_keeper();
    trace_.line(loop_.now(), "", "faults have ended");
  }
  bool runs(const PoolProcess& process) const { return machines_.runs(process.incarnation); }
  bool is_settled() const {
    const Keeper& core = keeper_->core();
    return core.nodes().size() == nodes_.size() &&
           std::ranges::all_of(core.ledger().jobs, [&](const PoolJob& job) {
             switch (job.state) {
               case PoolJobState::kQueued:
                 return !place(job.order, core.free_nodes()) || !job.why.empty();
               case PoolJobState::kRunning:
                 return !job.order.batch && runs(job.launcher) &&
                        std::ranges::all_of(
                            job.shares, [&](const HeldShare& held) { return runs(held.agent); });
               case PoolJobState::kEnding:
               case PoolJobState::kWarm:
                 return false;
               case PoolJobState::kEnded:
                 return true;
             }
             return false;
           });
  }
  void cancel_all() {
    const std::vector<PoolJob> jobs = keeper_->core().ledger().jobs;
    for (const PoolJob& job : jobs) {
      keeper_->submit(JobCancelled{job.order.name});
    }
  }
  bool is_empty() const {
    const Keeper& core = keeper_->core();
    return machines_.running().empty() && core.free_nodes() == core.nodes() &&
           std::ranges::all_of(core.ledger().jobs, [](const PoolJob& job) {
             return job.state == PoolJobState::kEnded;
           });
  }
  std::string states() const {
    std::string text = std::to_string(keeper_->core().nodes().size()) + " nodes";
    for (const PoolJob& job : keeper_->core().ledger().jobs) {
      text += "; " + job.order.name + " (" + job.order.text + ") is " + to_string(job.state) +
              " (" + job.why + ")";
    }
    return text;
  }

  template <class Done>
  void run_until(Instant when, const Done& done) {
    while (!invariants_.broken() && loop_.now() < when && !done()) {
      const Instant step = std::min<Instant>(when, loop_.now() + milliseconds(500));
      loop_.at(step, [] {});
      while (!invariants_.broken() && loop_.run_next(step)) {
      }
    }
  }

  const SimCall& call_;
  Random random_;
  SimLoop loop_;
  SimTrace trace_;
  Invariants invariants_;
  std::set<Incarnation> deaf_;  // Machines that go end what runs there, and tell.
  SimCuts cuts_;
  SimMachines machines_;
  SimLinks links_;
  SimAgents agents_;
  std::vector<Node> nodes_;
  SimKeeper::Disk disk_;
  std::unique_ptr<SimKeeper> keeper_;
  Instant spawns_fail_until_{};
  uint32_t events_ = 0;
  uint64_t jobs_ = 0;
  std::optional<PoolJobOrder> last_kept_;
  uint64_t starts_ = 0;
  uint64_t keepers_ = 0;
};

}  // namespace

SimRun simulate_pool(const SimCall& call) { return PoolWorld(call).run(); }

}  // namespace pdjob::simulation
