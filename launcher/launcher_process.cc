#include "launcher/launcher_process.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "common/hex.h"
#include "common/log.h"
#include "common/random.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "launcher/admin_api.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/job/job.h"
#include "launcher/job/prober.h"
#include "launcher/job_folder.h"
#include "launcher/job_log.h"
#include "launcher/job_news.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/status.h"
#include "launcher/view/terminal.h"
#include "net/control/control_channel.h"
#include "net/control/job_member.h"
#include "router/external/external_process.h"

namespace pdjob::launcher {

namespace {

std::string new_job_id() {
  constexpr size_t kDigits = 8;
  std::string text;
  append_hex(text, entropy(), kDigits);
  return text;
}

std::vector<uint64_t> model_bytes(const JobConfig& config) {
  std::vector<uint64_t> bytes;
  for (const ModelConfig& model : config.models) {
    std::error_code error;
    const auto size = std::filesystem::file_size(model.decode_engine.model_path, error);
    bytes.push_back(error ? 0 : size);
  }
  return bytes;
}

// The job's router cannot show a key to its workers, so they need none.
bool recipe_without_key(const JobConfig& config) {
  if (config.router.kind != router::RouterKind::kCommand) {
    return false;
  }
  const auto recipe = router::find_recipe(config.router.recipe);
  return !recipe || recipe->key_environment.empty() || !config.models.front().disaggregated();
}

Result<LaunchPlan> plan_on(const JobConfig& config, const std::vector<Node>& nodes) {
  PDJOB_TRY(LaunchPlan plan, make_plan(config, nodes, model_bytes(config)));
  if (config.kvtransfer.transport == kvtransfer::TransportKind::kNccl) {
    if (const Status there = kvtransfer::nccl_is_there(config.kvtransfer.nccl); !there) {
      plan.warnings.push_back(there.error().message + ": no worker will start");
    }
  }
  if (config.router.kind == router::RouterKind::kCommand) {
    PDJOB_TRY(const router::RouterRecipe recipe, router::find_recipe(config.router.recipe));
    const auto program =
        router::find_router_program(config.router, recipe, !config.models.front().disaggregated());
    if (!program) {
      plan.warnings.push_back("the router will not start: " + program.error().message);
    }
    if (recipe_without_key(config)) {
      plan.warnings.push_back("worker ports are open to whoever reaches them: " + recipe.name +
                              " cannot show a key to workers");
    }
  }
  return plan;
}

JobTiming timing_of(const JobConfig& job) {
  const LauncherConfig& config = job.launcher;
  return {.start_timeout = config.start_timeout,
          .stop_timeout = config.stop_timeout,
          .lease = job.kvtransfer.lease,
          .heartbeat_timeout = config.heartbeat_timeout,
          .hang_timeout = config.hang_timeout,
          .progress_timeout = config.progress_timeout,
          .restart = config.restart};
}

std::vector<ProcessPlan> processes_of(const LaunchPlan& plan) {
  std::vector<ProcessPlan> processes;
  for (const PlanRow& row : plan.rows) {
    processes.push_back(
        {.name = row.name,
         .role = row.role,
         .model = row.model,
         .demand = {.cores = row.cores, .gpus = static_cast<uint32_t>(row.gpus.size())},
         .place = {.node = row.node, .gpus = row.gpus}});
  }
  return processes;
}

bool is_heartbeat(const Event& event) {
  const auto* arrived = std::get_if<MessageArrived>(&event);
  return arrived != nullptr && std::holds_alternative<net::HeartbeatSent>(arrived->message);
}

// Turns SIGTERM, SIGINT and SIGHUP into an exit code. net::block_signals() has blocked the first
// two.
class StopSignals final : public net::FdHandler {
 public:
  StopSignals(net::EventLoop& loop, std::function<void(int)> then)
      : loop_(loop), then_(std::move(then)) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
      sigaddset(&set, number);
    }
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = net::Fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    PDJOB_CHECK(fd_.valid() && loop.watch(fd_.get(), EPOLLIN, *this).has_value());
  }
  ~StopSignals() { loop_.unwatch(fd_.get()); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void on_ready(uint32_t /*epoll_events*/) override {
    signalfd_siginfo info{};
    while (read(fd_.get(), &info, sizeof info) == sizeof info) {
      then_(info.ssi_signo == SIGINT ? kExitInterrupted : kExitOk);
    }
  }

 private:
  net::EventLoop& loop_;
  const std::function<void(int)> then_;
  net::Fd fd_;
};

class LauncherProcess final : Cluster::Handler, net::ControlServer::Handler {
 public:
  LauncherProcess(const JobConfig& config, LaunchPlan plan, JobFolder& folder, Terminal& terminal,
                  net::EventLoop& loop, Cluster& cluster)
      : config_(config),
        plan_(std::move(plan)),
        folder_(folder),
        terminal_(terminal),
        loop_(loop),
        cluster_(cluster),
        job_(processes_of(plan_), timing_of(config), new_job_id(),
             {.nodes = cluster.nodes(), .foreign_router = has_foreign_router()}),
        open_workers_(recipe_without_key(config)),
        link_authority_(root_key_.derive("kv links")),
        signals_(loop_, [this](int exit_code) { stop(exit_code); }) {
    cluster_.report_to(*this);
  }

  Status open() {
    PDJOB_TRY(control_, net::ControlServer::open(loop_, *this, config_.launcher.control_host));
    AdminPages pages{.status_json = [this] { return status_json(view()); },
                     .status_text = [this] { return status_text(view()); },
                     .plan_json = [this] { return plan_.to_json(); },
                     .metrics = [this] { return job_metrics(job_); },
                     .ready = [this] { return job_.state() == JobState::kReady; }};
    PDJOB_TRY(admin_, AdminApi::open(loop_, config_.launcher.admin, std::move(pages)));
    ProberOptions probing{
        .key = has_foreign_router() ? "" : probe_key(),
        .worker_key_of = [this](const std::string& name) { return worker_key(name); },
        .address_of = [this](const std::string& name) { return address_of(name); }};
    prober_ = std::make_unique<Prober>(loop_, std::move(probing),
                                       [this](const Event& event) { dispatch(event); });
    PDJOB_TRY_STATUS(folder_.publish_keys(worker_keys()));
    return folder_.publish({.pid = getpid(), .admin = admin_->address()});
  }

  int run() {
    open_next_door();
    loop_.run();
    return exit_code_;
  }

 private:
  // "0.0.0.0" is an address to listen on, not to connect to.
  static std::string reachable(const std::string& host) {
    return host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
  }

  bool has_foreign_router() const { return config_.router.kind == router::RouterKind::kCommand; }

  net::HttpAddress address_of(const std::string& name) const {
    const Process* const process = job_.find(name);
    PDJOB_CHECK(process != nullptr, name);
    return {.host = reachable(process->entry.host), .port = process->entry.port};
  }

  // The doors of routers are opened one after the other, because they share one port, which the
  // first may choose. The job starts when all are open.
  void open_next_door() {
    const auto row = plan_.rows.begin() + static_cast<ptrdiff_t>(doors_open_);
    if (row != plan_.rows.end() && row->role == net::Role::kRouter) {
      const bool shared = config_.router.replicas > 1;
      cluster_.open_door({.name = row->name,
                          .node = row->node,
                          .host = row->host,
                          .port = plan_.rows.front().port,
                          .use = shared ? net::PortUse::kShared : net::PortUse::kAlone});
      return;
    }
    const PlanRow& router = plan_.rows.front();
    url_ = "http://" + reachable(router.host) + ":" + std::to_string(router.port);
    terminal_.say(plan_.to_text());
    terminal_.say("logs: " + folder_.logs().path() + "\n");
    dispatch(Started{});
  }

  void take(const DoorOpened& event) {
    const auto row = std::ranges::find(plan_.rows, event.name, &PlanRow::name);
    PDJOB_CHECK(row != plan_.rows.end(), event.name);
    row->port = event.port;
    ++doors_open_;
    open_next_door();
  }
  void take(const DoorFailed& event) {
    terminal_.say("pdjob: " + event.reason + "\n");
    exit_code_ = kExitNotPlaced;
    loop_.stop();
  }
  template <class JobEvent>
  void take(const JobEvent& event) {
    dispatch(event);
  }

  JobView view() const {
    return {.plan = plan_, .job = job_, .launcher_pid = getpid(), .url = url_, .now = loop_.now()};
  }

  std::string worker_key(const std::string& name) const {
    return open_workers_ ? std::string() : root_key_.derive("worker http", name);
  }
  std::string probe_key() const { return root_key_.derive("probes"); }
  // A foreign router can show only one key, which all workers accept.
  std::string router_key() const {
    return has_foreign_router() && !open_workers_ ? root_key_.derive("router http") : std::string();
  }
  // The workers' keys; only the owner of the job can read them.
  std::map<std::string, std::string> worker_keys() const {
    std::map<std::string, std::string> keys;
    for (const PlanRow& row : plan_.rows) {
      if (row.role != net::Role::kRouter) {
        keys.emplace(row.name, worker_key(row.name));
      }
    }
    return keys;
  }

  void stop(int exit_code) {
    const bool again = job_.state() == JobState::kDraining;
    terminal_.say(again ? "ending everything at once\n"
                        : "stopping: finishing what is under way; ask again to end at once\n");
    dispatch(StopAsked{exit_code});
  }

  void on_cluster_event(const ClusterEvent& event) override {
    std::visit([this](const auto& body) { take(body); }, event);
  }
  void on_message(const std::string& peer, net::Message message) override {
    dispatch(MessageArrived{peer, std::move(message)});
  }

  // Effects may cause events (a spawn that fails). Such events wait until all effects of the
  // earlier step are done.
  void dispatch(Event event) {
    events_.push_back(std::move(event));
    if (events_.size() > 1) {
      return;
    }
    bool changed = false;
    for (; !events_.empty(); events_.pop_front()) {
      log_event(events_.front());
      std::vector<Effect> effects;
      job_.step(events_.front(), loop_.now(), effects);
      if (!is_heartbeat(events_.front())) {
        changed = true;
        tell_news();
      }
      for (Effect& effect : effects) {
        log_effect(effect);
        std::visit([this](auto& body) { apply(body); }, effect);
      }
    }
    if (changed && job_.state() == JobState::kStarting) {
      terminal_.progress(progress_line(job_));
    }
    wake_at(job_.next_wakeup());
  }

  void tell_news() {
    if (const std::string news = news_.look(job_, loop_.now()); !news.empty()) {
      terminal_.say(news);
    }
  }

  void wake_at(Instant when) {
    if (wakeup_ && when == wakeup_at_) {
      return;
    }
    wakeup_at_ = when;
    if (wakeup_) {
      loop_.cancel(*std::exchange(wakeup_, std::nullopt));
    }
    if (when != kNever) {
      wakeup_ = loop_.call_at(when, [this] {
        wakeup_.reset();
        dispatch(TimePassed{});
      });
    }
  }

  void apply(const Spawn& effect) {
    const bool router = effect.role == net::Role::kRouter;
    const net::CurveKeys keys = net::make_curve_keys();
    control_->allow(effect.name, keys.public_key);
    SpawnOrder order{.node = effect.place.node, .incarnation = effect.incarnation};
    net::ProcessSpec& spec = order.spec;
    spec.job = config_.name;
    spec.name = effect.name;
    spec.role = effect.role;
    spec.engine_id = effect.engine_id;
    spec.model = effect.model;
    spec.host = router ? plan_.rows.front().host : host_of(effect.place.node);
    spec.control = {control_->endpoint(), control_->public_key(), keys};
    spec.gpus = gpus_text(effect.place.gpus);
    spec.router_key = router_key();
    if (router) {
      spec.probe_key = probe_key();
    } else {
      spec.key = worker_key(effect.name);
      spec.link_keys = encode(link_authority_.issue(effect.engine_id));
    }
    spec.config_yaml = config_.text;
    spec.config_name = std::filesystem::absolute(config_.source).string();
    cluster_.spawn(order);
  }

  std::string host_of(const std::string& node) const {
    for (const Node& each : cluster_.nodes()) {
      if (each.name == node) {
        return each.host;
      }
    }
    return "127.0.0.1";  // It was lost just now, and the spawn fails.
  }

  void apply(const SendSignal& effect) { cluster_.signal(effect.incarnation, effect.signal); }
  void apply(const Send& effect) { control_->send(effect.peer, effect.message); }
  void apply(const Probe& effect) { prober_->start(effect); }
  void apply(const ReportReady&) {
    terminal_.progress(progress_line(job_));
    terminal_.ready(url_);
  }
  void apply(const CloseDoors&) {
    for (size_t i = 0; i < doors_open_; ++i) {
      cluster_.close_door(plan_.rows[i].name);
    }
  }
  void apply(const Finish& effect) {
    exit_code_ = effect.exit_code;
    if (!effect.reason.empty()) {
      terminal_.say("pdjob: the job failed: " + effect.reason + "\n");
    }
    if (!effect.culprit.empty()) {
      terminal_.say("--- end of " + folder_.logs().log_path(effect.culprit) + "\n" +
                    folder_.logs().tail(effect.culprit));
    }
    loop_.stop();
  }

  const JobConfig& config_;
  LaunchPlan plan_;
  JobFolder& folder_;
  Terminal& terminal_;
  net::EventLoop& loop_;
  Cluster& cluster_;
  JobNews news_;
  Job job_;
  const bool open_workers_;  // The job's router cannot show a key.
  const RootKey root_key_ = RootKey::make();
  const kvtransfer::LinkAuthority link_authority_;
  std::string url_;
  int exit_code_ = kExitFailed;
  std::deque<Event> events_;
  std::optional<net::TimerId> wakeup_;
  Instant wakeup_at_ = kNever;

  size_t doors_open_ = 0;
  StopSignals signals_;
  std::unique_ptr<net::ControlServer> control_;
  std::unique_ptr<AdminApi> admin_;
  std::unique_ptr<Prober> prober_;
};

// Says what would keep the job from starting now: the router's port in use.
void look_at_port(LaunchPlan& plan) {
  const PlanRow& router = plan.rows.front();
  if (const auto socket = net::listen_on(router.host, router.port); !socket) {
    plan.warnings.push_back("the job cannot start now: " + socket.error().message);
  }
}

int refuse(int exit_code, const Error& error) {
  std::fprintf(stderr, "pdjob: %s\n", error.message.c_str());
  return exit_code;
}

}  // namespace

int run_job(const JobConfig& config) {
  Result<LaunchPlan> plan = plan_on(config, {LocalCluster::this_node()});
  if (!plan) {
    return refuse(kExitNotPlaced, plan.error());
  }
  Result<JobFolder> folder = JobFolder::claim(config);
  if (!folder) {
    return refuse(folder.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed,
                  folder.error());
  }
  Result<net::Fd> log = folder->logs().open("launcher");
  if (!log) {
    return refuse(log.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed,
                  log.error());
  }
  Result<Terminal> terminal = Terminal::open(*log);
  if (!terminal) {
    return refuse(kExitFailed, terminal.error());
  }
  net::block_signals();
  log::start("launcher", log::Level::kInfo);
  net::EventLoop loop;
  LocalCluster cluster(loop, {.logs = folder->logs()});
  LauncherProcess launcher(config, std::move(*plan), *folder, *terminal, loop, cluster);
  if (const Status opened = launcher.open(); !opened) {
    terminal->say("pdjob: " + opened.error().message + "\n");
    return kExitNotPlaced;
  }
  return launcher.run();
}

int show_plan(const JobConfig& config, PlanForm form) {
  Result<LaunchPlan> plan = plan_on(config, {LocalCluster::this_node()});
  if (!plan) {
    return refuse(kExitNotPlaced, plan.error());
  }
  look_at_port(*plan);
  std::fputs((form == PlanForm::kJson ? plan->to_json() : plan->to_text()).c_str(), stdout);
  return kExitOk;
}

}  // namespace pdjob::launcher
