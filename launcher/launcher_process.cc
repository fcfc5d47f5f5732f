#include "launcher/launcher_process.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include "common/address_text.h"
#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "launcher/admin_api.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/dashboard/load_history.h"
#include "launcher/dashboard/process_watch.h"
#include "launcher/job/job.h"
#include "launcher/job_apply.h"
#include "launcher/job_clusters.h"
#include "launcher/job_folder.h"
#include "launcher/job_plan.h"
#include "launcher/job_replacements.h"
#include "launcher/job_rollout.h"
#include "launcher/job_run.h"
#include "launcher/job_runner.h"
#include "launcher/job_scaling.h"
#include "launcher/job_start.h"
#include "launcher/metrics/job_scrape.h"
#include "launcher/placement/assumed_nodes.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/report/job_log.h"
#include "launcher/report/job_news.h"
#include "launcher/report/nodes.h"
#include "launcher/report/status.h"
#include "launcher/run/patiently.h"
#include "launcher/view/table.h"
#include "launcher/view/terminal.h"
#include "net/control/control_channel.h"
#include "net/loop/signals.h"

namespace pdjob::launcher {

namespace {

constexpr const char* kOwnLog = "launcher";

// Routers want it for a trainer's orders.
Result<std::string> control_key(const JobConfig& config, const JobRun& run) {
  if (!config.rollout.key_file.empty()) {
    return read_key_file(config.rollout.key_file);
  }
  return run.ledger().root_key().derive("rollout control");
}

constexpr const char* kAnyPort = "127.0.0.1:0";

// The console, the log and the admin API of a job that runs.
class LauncherProcess final : JobRunner::Observer {
 public:
  LauncherProcess(const JobConfig& config, const Places& places, LaunchPlan plan, JobFolder& folder,
                  Terminal& terminal, net::EventLoop& loop, Cluster& cluster, JobRun& run,
                  const std::string& control_key)
      : config_(config),
        plan_(std::move(plan)),
        folder_(folder),
        run_(run),
        terminal_(terminal),
        loop_(loop),
        cluster_(cluster),
        control_key_(control_key),
        runner_(loop, cluster,
                runner_options(config, plan_, run.ledger(), run.adopts(), control_key), *this),
        scaling_(
            loop, runner_, config, plan_, [this](const std::string& line) { terminal_.say(line); },
            {.record = run.ledger().scaling,
             .keep = [this](ScalingRecord record) { run_.ledger().scaling = std::move(record); }}),
        apply_(loop, runner_, scaling_, run, config,
               {.places = places,
                .plan =
                    [this](const JobConfig& changed) {
                      return plan_on(changed, cluster_.nodes(), PlanProbe::kNo);
                    }}),
        stragglers_(
            loop, runner_,
            {.config = config.launcher.stragglers,
             .replaces_failing = config.launcher.replace_failing,
             .record = run.ledger().stragglers,
             .say = [this](const std::string& line) { scaling_.note(line); },
             .keep =
                 [this](StragglerRecord record) { run_.ledger().stragglers = std::move(record); }}),
        links_(loop, kLinksPage, [this] { return watched_workers(); }),
        requests_(loop, kRequestsPage, [this] { return watched_routers(); }),
        scrape_(loop, [this] { return scraped_processes(); }),
        signals_(loop, std::array{SIGTERM, SIGINT, SIGHUP},
                 [this](int signal) { stop(signal == SIGINT ? kExitInterrupted : kExitOk); }) {
    if (config_.mode == Mode::kRollout) {
      rollout_.emplace(
          loop_, runner_,
          JobRollout::Options{.timing = {.prepare_timeout = config_.rollout.prepare_timeout,
                                         .quiesce_timeout = config_.rollout.quiesce_timeout,
                                         .apply_timeout = config_.rollout.apply_timeout},
                              .record = run_.ledger().rollout,
                              .launcher = run_.ledger().launcher,
                              .say =
                                  [this](const std::string& line) {
                                    log::info(line);
                                    terminal_.say(line + "\n");
                                  },
                              .keep =
                                  [this](const RolloutRecord& record) {
                                    run_.ledger().rollout = record;
                                    run_.save();
                                  }});
    }
  }

  ~LauncherProcess() { loop_.cancel(history_timer_); }
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  Status open() {
    PDJOB_TRY_STATUS(open_control());
    AdminPages pages = admin_pages();
    if (rollout_) {
      pages.pages["/rollout"] = {kAdminJson, [this] { return rollout_->json(); }};
      pages.pages["/rollout?as=text"] = {kAdminText, [this] { return rollout_->text(); }};
      if (config_.rollout.key_file.empty() && !config_.rollout.open) {
        PDJOB_TRY_STATUS(folder_.publish_control_key(control_key_));
      }
    }
    const LauncherConfig& launcher = config_.launcher;
    if (!launcher.admin_is_local()) {
      PDJOB_TRY_STATUS(open_to_others(pages));
    }
    PDJOB_TRY(admin_, AdminApi::open(loop_, launcher.admin_is_local() ? launcher.admin : kAnyPort,
                                     std::move(pages)));
    PDJOB_TRY_STATUS(publish_keys());
    return folder_.publish(
        {.pid = getpid(), .admin = admin_->address(), .key = runner_.owner_key()});
  }

  const Job& job() const { return runner_.job(); }
  bool leaves_warm() const { return leaves_warm_; }

  int run(RunHow how) {
    begun_ = loop_.now();
    how_ = how;
    runner_.start(std::move(control_));
    for (int asked = 0; asked < static_cast<int>(how); ++asked) {
      stop(kExitOk);
    }
    look_at_load();
    loop_.run();
    return exit_code_;
  }

 private:
  AdminPages admin_pages() {
    using TextDone = AdminPages::TextDone;
    return {
        .owner_key = runner_.owner_key(),
        .pages =
            {{"/status", {kAdminJson, [this] { return status_json(view()); }}},
             {"/status?as=text", {kAdminText, [this] { return status_text(view()); }}},
             {"/nodes",
              {kAdminJson,
               [this] { return nodes_json(plan_.job, cluster_.nodes(), job(), loop_.now()); }}},
             {"/nodes?as=text",
              {kAdminText, [this] { return nodes_text(cluster_.nodes(), job(), loop_.now()); }}},
             {"/nodes?as=yaml",
              {kAdminText, [this] { return assumed_nodes_text(cluster_.nodes()); }}},
             {"/plan", {kAdminJson, [this] { return plan_.to_json(); }}},
             {"/scale", {kAdminJson, [this] { return scaling_.json(); }}},
             {"/scale?as=text", {kAdminText, [this] { return scaling_.text(); }}},
             {"/explain", {kAdminText, [this] { return scaling_.explain(); }}},
             {"/explain?as=json", {kAdminJson, [this] { return scaling_.explain_json(); }}},
             {"/links", {kAdminJson, [this] { return links_.look(); }}},
             {"/requests", {kAdminJson, [this] { return requests_.look(); }}},
             {"/history", {kAdminJson, [this] { return history_.json(); }}},
             {"/apply", {kAdminJson, [this] { return apply_.json(); }}}},
        .orders = {{"/scale", [this](std::string_view sizes) { return scaling_.order(sizes); }},
                   {"/apply", [this](std::string_view file) { return apply_.order(file); }},
                   {"/diff", [this](std::string_view file) { return apply_.diff(file); }}},
        .ready = [this] { return serves(job()); },
        .metrics = [this] { return own_metrics(); },
        .all_metrics = [this](TextDone done) { scrape_.all(own_metrics(), std::move(done)); },
        .process_metrics = [this](std::string_view name,
                                  TextDone done) { scrape_.one(name, std::move(done)); },
        .discovery_json =
            [this](const std::string& address, const std::string& scheme) {
              return discovery_json(plan_.job, address, scheme, scraped_processes());
            },
        .log = [this](
                   const std::string& process, std::optional<uint64_t> from,
                   TextDone done) { read_log(process, from.value_or(kLogEnd), std::move(done)); }};
  }

  // Once a second, as long as the launcher runs.
  void look_at_load() {
    std::vector<LoadOfWorker> workers;
    for (const Process& process : job().processes()) {
      if (process.serving() && process.load_told && process.is_worker()) {
        workers.push_back({.engine_id = process.engine_id,
                           .decodes = process.role != net::Role::kPrefill,
                           .load = process.load});
      }
    }
    history_.look(workers, loop_.now());
    history_timer_ =
        loop_.call_at(loop_.now() + LoadHistory::kInterval, [this] { look_at_load(); });
  }

  // Beside the address on loopback, where this machine's commands ask.
  Status open_to_others(const AdminPages& pages) {
    const LauncherConfig& launcher = config_.launcher;
    PDJOB_TRY(std::string key, read_key_file(launcher.admin_key_file));
    PDJOB_TRY(admin_tls_, net::ServerTls::open(launcher.admin_tls));
    PDJOB_TRY(for_others_, AdminApi::open(loop_, launcher.admin, pages,
                                          {.key = std::move(key), .tls = admin_tls_.get()}));
    certificate_watch_.emplace(loop_, *admin_tls_, [this](net::ServerTls::Look look) {
      log::info(look == net::ServerTls::Look::kRefused
                    ? "admin_tls: the new certificate is refused, and the old one stays: " +
                          admin_tls_->refusal()
                    : "admin_tls: new connections get the new certificate");
    });
    terminal_.say("dashboard: https://" + for_others_->address() + "\n");
    return ok();
  }

  // Processes that are there already reach it where the earlier launcher was.
  Status open_control() {
    JobLedger& ledger = run_.ledger();
    const net::ControlServer::Options options{
        .host = config_.launcher.control_host,
        .port = ledger.control_port,
        .keys = net::curve_keys_of(ledger.root_key().derive("control")),
        .launcher = ledger.launcher,
        .use = run_.lasts() ? net::PortUse::kShared : net::PortUse::kAlone};
    constexpr Duration kOldPortComesFree = std::chrono::seconds(5);
    PDJOB_TRY(control_, patiently(run_.adopts() ? kOldPortComesFree : Duration{}, [&] {
                return net::ControlServer::open(loop_, runner_, options);
              }));
    ledger.control_port = net::port_of(control_->endpoint());
    return ok();
  }

  JobView view() const {
    return {.plan = plan_,
            .job = job(),
            .launcher_pid = getpid(),
            .url = url_,
            .now = loop_.now(),
            .slowness = [this](std::string_view name) { return stragglers_.slowness(name); }};
  }

  // The routers that can tell where the time of requests went.
  std::vector<WatchedProcess> watched_routers() const {
    std::vector<WatchedProcess> routers;
    for (const Process& process : job().processes()) {
      if (process.serving() && process.is_router() &&
          config_.router.kind != router::RouterKind::kCommand) {
        routers.push_back({.name = process.name,
                           .engine_id = process.engine_id,
                           .address = runner_.address_of(process.name),
                           .key = runner_.probe_key()});
      }
    }
    return routers;
  }

  // The workers that can tell their KV links.
  std::vector<WatchedProcess> watched_workers() const {
    std::vector<WatchedProcess> workers;
    for (const Process& process : job().processes()) {
      if (process.serving() && process.is_worker() && !process.is_foreign()) {
        workers.push_back({.name = process.name,
                           .engine_id = process.engine_id,
                           .address = runner_.address_of(process.name),
                           .key = runner_.shown_key(process.name)});
      }
    }
    return workers;
  }

  std::vector<ScrapedProcess> scraped_processes() const {
    std::vector<ScrapedProcess> processes;
    for (const Process& process : job().processes()) {
      if (process.serving() && process.entry.port != 0) {
        const bool open = process.is_router() || process.is_batch();
        processes.push_back({.name = process.name,
                             .role = to_string(process.role),
                             .address = runner_.address_of(process.name),
                             .key = open ? "" : runner_.shown_key(process.name)});
      }
    }
    return processes;
  }

  std::string own_metrics() const {
    return job_metrics(view()) + scaling_.metrics() +
           (rollout_ ? rollout_metrics(rollout_->core()) : "");
  }

  // The keys of workers and stores; only the owner of the job can read them.
  Status publish_keys() {
    std::map<std::string, std::string> keys;
    for (const Process& process : job().processes()) {
      if (process.is_worker() || process.is_store()) {
        keys.emplace(process.name, runner_.worker_key(process.name));
      }
    }
    if (keys != keys_) {
      PDJOB_TRY_STATUS(folder_.publish_keys(keys));
      keys_ = std::move(keys);
    }
    return ok();
  }

  void read_log(const std::string& process, uint64_t from, AdminPages::TextDone done) {
    const auto piece_of = [](uint64_t begin, const std::string& text) {
      return std::to_string(begin) + "\n" + text;
    };
    if (process == kOwnLog) {
      const auto piece = folder_.logs().read(process, from, kLogPieceBytesMax);
      done(piece ? Result<std::string>(piece_of(piece->from, piece->text)) : piece.error());
      return;
    }
    runner_.read_log(process, from, [=, done = std::move(done)](const Result<LogAnswered>& answer) {
      done(answer ? Result<std::string>(piece_of(answer->from, answer->text)) : answer.error());
    });
  }

  void stop(int exit_code) {
    const bool again = job().state() == JobState::kDraining;
    terminal_.say(again ? "ending everything at once\n"
                        : "stopping: finishing what is under way; ask again to end at once\n");
    const bool keeps_warm = how_ == RunHow::kServe && config_.launcher.keep > Duration::zero();
    runner_.submit(StopAsked{exit_code, keeps_warm});
  }

  void on_doors_open(uint16_t port, uint16_t batch_port) override {
    for (PlanRow& row : plan_.rows) {
      row.port = row.role == net::Role::kRouter  ? port
                 : row.role == net::Role::kBatch ? batch_port
                                                 : row.port;
    }
    run_.ledger().door_port = port;
    run_.ledger().batch_door_port = batch_port;
    url_ = (config_.router.tls.on() ? "https://" : "http://") +
           address_text(reachable(plan_.rows.front().host), port);
    if (how_ != RunHow::kServe) {
      return;
    }
    terminal_.say(plan_.to_text());
    terminal_.say("logs: " + folder_.logs().path() + "\n");
  }

  void on_door_failed(const std::string& reason) override {
    terminal_.say("pdjob: " + reason + "\n");
    exit_code_ = kExitNotPlaced;
    loop_.stop();
  }

  void on_step(const Event& event, const std::vector<Effect>& effects) override {
    run_.note(job(), event, effects);
    log_event(event);
    for (const Effect& effect : effects) {
      log_effect(effect);
    }
    if (is_heartbeat(event)) {
      return;
    }
    if (const std::string news = news_.look(job(), loop_.now()); !news.empty()) {
      scaling_.note(news);
    }
    if (job().state() == JobState::kStarting) {
      terminal_.progress(progress_line(job()));
    }
    if (const Status published = publish_keys(); !published) {
      terminal_.say("pdjob: the workers' keys cannot be written: " + published.error().message +
                    "\n");
    }
    apply_.job_changed();
    if (rollout_) {
      rollout_->job_changed(event);
    }
  }

  void on_ready() override {
    terminal_.progress(progress_line(job()));
    terminal_.ready(url_);
  }

  void on_adopted(const ReportAdopted& adopted) override {
    const auto took = (loop_.now() - begun_) / std::chrono::milliseconds(1);
    scaling_.note("adopted " + std::to_string(adopted.adopted) + " of " +
                  std::to_string(adopted.processes) + " processes in " + std::to_string(took) +
                  " ms\n");
  }

  void on_finish(const Finish& finish) override {
    exit_code_ = finish.exit_code;
    leaves_warm_ = finish.keeps_warm;
    if (leaves_warm_) {
      terminal_.say("workers stay warm for " + duration_text(config_.launcher.keep) +
                    ": the next job of this file has them at once, and `pdjob stop --job " +
                    config_.name + "` ends them\n");
    }
    if (!finish.reason.empty()) {
      terminal_.say("pdjob: the job failed: " + finish.reason + "\n");
    }
    if (!finish.culprit.empty()) {
      const std::string log = (run_.lasts() ? std::string(kLocalLogs) + "/" : "") + finish.culprit;
      terminal_.say("--- end of " + folder_.logs().log_path(log) + "\n" + folder_.logs().tail(log));
    }
    loop_.stop();
  }

  const JobConfig& config_;
  LaunchPlan plan_;
  JobFolder& folder_;
  JobRun& run_;
  Terminal& terminal_;
  net::EventLoop& loop_;
  Cluster& cluster_;
  JobNews news_;
  std::string url_;
  int exit_code_ = kExitFailed;
  bool leaves_warm_ = false;
  Instant begun_{};
  RunHow how_ = RunHow::kServe;
  std::map<std::string, std::string> keys_;  // As published, by worker.
  const std::string control_key_;
  JobRunner runner_;
  JobScaling scaling_;
  JobApply apply_;
  JobReplacements stragglers_;
  ProcessWatch links_;
  ProcessWatch requests_;
  LoadHistory history_;
  net::TimerId history_timer_;
  JobScrape scrape_;
  std::optional<JobRollout> rollout_;  // Of a rollout job.
  net::StopSignals signals_;
  std::unique_ptr<net::ControlServer> control_;  // Until the runner starts.
  std::unique_ptr<AdminApi> admin_;
  std::unique_ptr<net::ServerTls> admin_tls_;
  std::unique_ptr<AdminApi> for_others_;  // An address beyond loopback.
  std::optional<net::CertificateWatch> certificate_watch_;
};

struct PlacedJob {
  JobClusters clusters;
  LaunchPlan plan;
};

// An adopted job has its plan, and its nodes come when they come.
Result<PlacedJob> place_job(const JobConfig& config, JobFolder& folder, net::EventLoop& loop,
                            JobRun& run, const std::function<void(const std::string&)>& progress) {
  PlacedJob placed;
  const Instant begin = loop.now();
  PDJOB_TRY(placed.clusters, open_clusters(loop, config, folder, run, progress));
  if (!run.adopts()) {
    NodeWaiting waiting = node_waiting(config, progress);
    waiting.local_agent = true;
    waiting.since = begin;
    Cluster& cluster = *placed.clusters.cluster;
    PDJOB_TRY_STATUS(wait_for_nodes(loop, cluster, config, waiting));
    run.ledger().plan_nodes = cluster.nodes();
  }
  PDJOB_TRY(placed.plan, plan_on(config, run.ledger().plan_nodes, PlanProbe::kYes));
  return placed;
}

}  // namespace

int run_job(const JobConfig& config, const Places& places, RunHow how) {
  if (config.clusters.empty()) {
    // Says what cannot run before it makes anything.
    if (const auto plan = plan_on(config, {LocalCluster::this_node()}, PlanProbe::kYes); !plan) {
      return refuse_job(kExitNotPlaced, plan.error());
    }
  }
  if (const Status fits = check(specs_of(config)); !fits) {
    return refuse_job(kExitUsage, fits.error());
  }
  Result<JobFolder> folder = JobFolder::claim(config, real_now());
  if (!folder) {
    return refuse_job(folder.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed,
                      folder.error());
  }
  Result<net::Fd> log = folder->logs().open(kOwnLog);
  if (!log) {
    return refuse_job(log.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed,
                      log.error());
  }
  Result<Terminal> terminal = Terminal::open(*log);
  if (!terminal) {
    return refuse_job(kExitFailed, terminal.error());
  }
  net::block_signals();
  log::start("launcher", log::Level::kInfo);
  net::EventLoop loop;
  auto run =
      JobRun::begin(loop, *folder, *terminal, config,
                    how == RunHow::kServe ? JobRun::Stopped::kIsOver : JobRun::Stopped::kGoesOn);
  if (!run) {
    leave_all(*terminal, exit_code_of(run.error()), run.error().message);
  }
  // From here on a failure ends the job, but not one that an earlier launcher left.
  const auto fail = [&](int exit_code, const Error& error) {
    if ((*run)->adopts()) {
      leave_all(*terminal, exit_code, error.message);
    }
    terminal->say("pdjob: " + error.message + "\n");
    return exit_code;
  };
  Result<PlacedJob> placed = place_job(config, *folder, loop, **run,
                                       [&](const std::string& text) { terminal->progress(text); });
  if (!placed) {
    return fail(exit_code_of(placed.error()), placed.error());
  }
  std::string key;  // Empty: the job takes no orders.
  if (config.mode == Mode::kRollout) {
    auto found = control_key(config, **run);
    if (!found) {
      return fail(kExitUsage, found.error());
    }
    key = *std::move(found);
  }
  LauncherProcess launcher(config, places, std::move(placed->plan), *folder, *terminal, loop,
                           *placed->clusters.cluster, **run, key);
  if (const Status opened = launcher.open(); !opened) {
    return fail(kExitNotPlaced, opened.error());
  }
  const int exit_code = launcher.run(how);
  if (launcher.leaves_warm()) {
    (*run)->leave_warm(launcher.job());
    placed->clusters.leave_warm(loop, config.launcher.keep);
  }
  return exit_code;
}

}  // namespace pdjob::launcher
