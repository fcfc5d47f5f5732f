#include "launcher/pool/keeper_process.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <unistd.h>

#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "common/files/own_files.h"
#include "common/files/small_file.h"
#include "common/hex.h"
#include "common/json/json_fields.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/parse_number.h"
#include "common/random.h"
#include "launcher/admin_api.h"
#include "launcher/agents/agent_cluster.h"
#include "launcher/agents/build_version.h"
#include "launcher/job_folder.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/pool/job_shares.h"
#include "launcher/pool/keeper.h"
#include "launcher/pool/pool_specs.h"
#include "launcher/pool/pool_text.h"
#include "launcher/view/table.h"
#include "net/control/process_spec.h"
#include "net/http/http_client.h"
#include "net/loop/core_runner.h"
#include "net/loop/signals.h"

namespace pdjob::launcher {

namespace {

constexpr const char* kLedger = "/ledger.pool";
constexpr size_t kLedgerBytesMax = size_t{1} << 30;
constexpr size_t kNodeNameBytesMax = 56;     // Of the pool's node, in the name of a share.
constexpr size_t kOrderTextBytesMax = 4096;  // Of a path, or a reason.
constexpr Duration kLeaseRenewed = std::chrono::seconds(1);
constexpr Duration kStandbyLooks = std::chrono::seconds(1);  // For a keeper that has died.

std::string shortened(std::string text, size_t bytes_max) {
  text.resize(std::min(text.size(), bytes_max));
  return text;
}

std::string launcher_name(const PoolJob& job) { return "launcher-" + job.order.name; }

// What the job calls the node: "gpu-7.0".
std::string node_name(const HeldShare& held) {
  const size_t slash = held.share.node.find('/');
  return held.share.node.substr(slash + 1, kNodeNameBytesMax) + "." + std::to_string(held.number);
}

Result<PoolLedger> read_ledger(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    return PoolLedger{.root = RootKey::make().derive("pool")};
  }
  PDJOB_TRY(const std::string bytes, read_small_file(path, kLedgerBytesMax, Secrecy::kSecret));
  return decode_pool_ledger(bytes);
}

class KeeperProcess final : Cluster::Handler {
 public:
  KeeperProcess(net::EventLoop& loop, const KeeperOptions& options, const Places& places,
                JobFolder& folder, PoolLedger ledger)
      : loop_(loop),
        options_(options),
        places_(places),
        folder_(folder),
        core_(
            {.first_port = options.first_port,
             .last_port = options.last_port,
             .orphan_timeout = options.orphan_timeout},
            [this](const PoolJobOrder& order, const std::vector<Node>& free) {
              return place(order, free);
            },
            std::move(ledger), loop.now()),
        runner_(loop, core_, *this),
        signals_(loop, std::array{SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
          leave(kExitOk, "stopped by signal " + std::to_string(signal));
        }) {}

  Status open() {
    PDJOB_TRY_STATUS(folder_.begin_lease(core_.ledger().keeper, loop_.now()));
    keep_lease();
    save();
    PDJOB_TRY(const std::string key, read_key_file(options_.key_file));
    PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(options_.listen));
    PDJOB_TRY(cluster_, AgentCluster::open(
                            loop_, {.roster = {.cluster = options_.pool,
                                               .job = "pool " + options_.pool,
                                               .build = build_version(),
                                               .host = options_.host,
                                               .orphan_timeout = options_.orphan_timeout,
                                               .owner = core_.ledger().root_key().derive("owner"),
                                               .launcher = core_.ledger().keeper,
                                               .first_session = (entropy() >> 1) + 1},
                                    .host = listen.host,
                                    .port = listen.port,
                                    .keys = AgentKeys::of(key)}));
    cluster_->report_to(*this);
    PDJOB_TRY(admin_, AdminApi::open(loop_, "127.0.0.1:0", pages()));
    PDJOB_TRY_STATUS(
        folder_.publish({.pid = getpid(), .admin = admin_->address(), .key = owner_key()}));
    log::info("keeper of pool " + options_.pool + ": agents join at " + cluster_->endpoint() +
              ", jobs come by `pdjob submit FILE`, and http://" + admin_->address() +
              " shows them");
    runner_.submit(TimePassed{});
    return ok();
  }

  using Runner = net::CoreRunner<KeeperProcess, Keeper, KeeperEvent, KeeperEffect>;
  friend Runner;

 private:
  std::string owner_key() const { return core_.ledger().root_key().derive("orders"); }

  // Nothing is said to the agents: they keep what runs.
  [[noreturn]] void leave(int exit_code, const std::string& why) {
    log::warn(why + ": all jobs go on, for " + duration_text(options_.orphan_timeout) +
              " without a keeper; start it again");
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }

  void save() {
    std::string bytes = encode(core_.ledger());
    if (bytes == saved_) {
      return;
    }
    renew_lease();
    if (const Status written = write_own_text(folder_.path() + kLedger, bytes, Durable::kYes);
        !written) {
      leave(kExitFailed, written.error().message);
    }
    saved_ = std::move(bytes);
  }

  // A later keeper may have taken over while this one stood still.
  void renew_lease() {
    const Status renewed = folder_.renew_lease(core_.ledger().keeper, loop_.now());
    if (!renewed && renewed.error().code == ErrorCode::kCancelled) {
      leave(kExitFailed, renewed.error().message);
    }
  }
  void keep_lease() {
    loop_.call_at(loop_.now() + kLeaseRenewed, [this] { keep_lease(); });
    renew_lease();
  }

  // --- the cluster
  void on_cluster_event(const ClusterEvent& event) override {
    std::visit([this](const auto& body) { take(body); }, event);
  }
  void take(const DoorOpened& /*event*/) {}
  void take(const DoorFailed& /*event*/) {}
  void take(const ProcessSeen& /*event*/) {}
  void take(const LogAnswered& event) {
    if (auto reader = log_readers_.extract(event.ticket)) {
      event.found ? reader.mapped()(std::to_string(event.from) + "\n" + event.text)
                  : reader.mapped()(Error{ErrorCode::kNotFound, "there is no such log"});
    }
  }
  template <class Event>
  void take(const Event& event) {
    runner_.submit(event);
  }

  // --- what the core wants
  void stepped(const KeeperEvent& /*event*/, const std::vector<KeeperEffect>& /*effects*/) {
    save();
  }
  void carried_out(const KeeperEvent& /*event*/) {}
  void carry_out(const StartLauncher& effect);
  void carry_out(const StartShare& effect);
  void carry_out(const EndProcess& effect) {
    cluster_->signal(effect.node, effect.incarnation, effect.signal);
  }
  void carry_out(const SayOfPool& effect) { log::info(effect.text); }

  std::string host_of(const std::string& node) const {
    const Node* const found = core_.node(node);
    return found == nullptr ? "" : found->host;
  }
  std::string agents_address(const PoolJob& job) const {
    return net::HttpAddress{host_of(job.launcher.node), job.port}.to_string();
  }

  Result<std::vector<Share>> place(const PoolJobOrder& order, const std::vector<Node>& free) const {
    auto config = read_pool_job(order.source, order.text, places_);
    auto shares = config ? shares_of(*config, free) : Result<std::vector<Share>>(config.error());
    return shares
               ? shares
               : Error{shares.error().code, shortened(shares.error().message, kOrderTextBytesMax)};
  }

  // --- orders
  AdminPages pages();
  Result<std::string> submit(std::string_view body);
  Result<std::string> cancel(std::string_view body);
  Result<std::string> set_quota(std::string_view body);
  Result<std::string> tell_of(std::string_view body) const;
  void read_log(const std::string& process, std::optional<uint64_t> from,
                const AdminPages::TextDone& done);
  std::string metrics() const;

  net::EventLoop& loop_;
  const KeeperOptions& options_;
  const Places& places_;
  JobFolder& folder_;
  Keeper core_;
  std::string saved_;  // The bytes on disk.
  uint64_t tickets_ = 0;
  std::map<uint64_t, AdminPages::TextDone> log_readers_;
  Runner runner_;
  net::StopSignals signals_;
  std::unique_ptr<AgentCluster> cluster_;
  std::unique_ptr<AdminApi> admin_;
};

void KeeperProcess::carry_out(const StartLauncher& effect) {
  const PoolJob* const job = core_.job(effect.job);
  if (job == nullptr) {
    return;
  }
  const auto here = std::ranges::count_if(
      job->shares, [&](const HeldShare& held) { return core_.node(held.share.node) != nullptr; });
  const LaunchSpec launch{.job = job->order.name,
                          .text = job->order.text,
                          .source = job->order.source,
                          .listen = agents_address(*job),
                          .key = core_.ledger().key_of(*job),
                          .nodes = static_cast<uint32_t>(std::max<int64_t>(here, 1))};
  cluster_->spawn({.node = job->launcher.node,
                   .incarnation = job->launcher.incarnation,
                   .spec = {.job = job->order.name,
                            .name = launcher_name(*job),
                            .host = host_of(job->launcher.node),
                            .command = kLaunchCommand,
                            .work = encode(launch)}});
}

void KeeperProcess::carry_out(const StartShare& effect) {
  const PoolJob* const job = core_.job(effect.job);
  const auto held = job == nullptr
                        ? std::vector<HeldShare>::const_iterator()
                        : std::ranges::find(job->shares, effect.share, &HeldShare::number);
  if (job == nullptr || held == job->shares.end()) {
    return;
  }
  const Share& share = held->share;
  const ShareSpec spec{.job = job->order.name,
                       .name = node_name(*held),
                       .join = agents_address(*job),
                       .key = core_.ledger().key_of(*job),
                       .cores = share.cores,
                       .memory_bytes = share.memory_bytes,
                       .gpu_parts = share.gpu_parts,
                       .labels = share.labels};
  cluster_->spawn({.node = share.node,
                   .incarnation = held->agent.incarnation,
                   .spec = {.job = job->order.name,
                            .name = "share-" + job->order.name + "-" + std::to_string(held->number),
                            .host = host_of(share.node),
                            .gpus = gpus_text(share.gpus),
                            .command = kShareCommand,
                            .work = encode(spec)}});
}

AdminPages KeeperProcess::pages() {
  const auto nothing = [](const AdminPages::TextDone& done) {
    done(Error{ErrorCode::kInvalidArgument, "a keeper has no other processes' metrics"});
  };
  const auto snapshot = [this] {
    return PoolView{.pool = options_.pool,
                    .jobs = core_.ledger().jobs,
                    .quotas = core_.ledger().quotas,
                    .nodes = core_.nodes(),
                    .free = core_.free_nodes()};
  };
  AdminPages pages;
  pages.owner_key = owner_key();
  pages.here = "/ (the jobs) /jobs (the same as JSON) /metrics /health /logs?process=NAME\n";
  pages.pages["/"] = {kAdminText, [snapshot] { return jobs_text(snapshot()); }};
  pages.pages["/jobs"] = {kAdminJson, [snapshot] { return jobs_json(snapshot()); }};
  pages.pages["/jobs?as=text"] = {kAdminText, [snapshot] { return jobs_text(snapshot()); }};
  pages.orders["/submit"] = [this](std::string_view body) { return submit(body); };
  pages.orders["/cancel"] = [this](std::string_view body) { return cancel(body); };
  pages.orders["/quota"] = [this](std::string_view body) { return set_quota(body); };
  pages.orders["/job"] = [this](std::string_view body) { return tell_of(body); };
  pages.ready = [] { return true; };
  pages.metrics = [snapshot] { return pool_metrics(snapshot()); };
  pages.all_metrics = nothing;
  pages.process_metrics = [nothing](std::string_view, const AdminPages::TextDone& done) {
    nothing(done);
  };
  pages.discovery_json = [](const std::string& address, const std::string&) {
    return R"([{"targets":[")" + address + R"("],"labels":{}}])";
  };
  pages.log = [this](const std::string& process, std::optional<uint64_t> from,
                     const AdminPages::TextDone& done) { read_log(process, from, done); };
  return pages;
}

// A line of JSON, and the job file.
Result<std::string> KeeperProcess::submit(std::string_view body) {
  const size_t line = body.find('\n');
  JsonFields fields("the order", std::string(body.substr(0, line)));
  std::string source;
  std::string queue;
  std::string priority;
  fields.take("source", source);
  fields.take("queue", queue);
  fields.take("priority", priority);
  PDJOB_TRY_STATUS(fields.status());
  const std::string text(line == std::string_view::npos ? "" : body.substr(line + 1));
  if (text.size() > limits::kConfigBytesMax || source.size() > kOrderTextBytesMax) {
    return Error{ErrorCode::kInvalidArgument, "the job file, or its path, is too long"};
  }
  PDJOB_TRY(const JobConfig config, read_pool_job(source, text, places_));
  PDJOB_TRY(PoolJobOrder order, order_of(config));
  order.text = text;
  order.source = source;
  if (!queue.empty() && !is_process_name(queue)) {
    return Error{ErrorCode::kInvalidArgument,
                 "the queue's name must be of a-z, 0-9, - and _, got " + queue};
  }
  order.queue = shortened(queue.empty() ? order.queue : queue, kNodeNameBytesMax);
  if (!priority.empty()) {
    const auto number = parse_number<int64_t>(priority);
    if (!number) {
      return Error{ErrorCode::kInvalidArgument, "the priority must be a whole number"};
    }
    order.priority = *number;
  }
  if (const std::string why = core_.objection(order); !why.empty()) {
    return Error{ErrorCode::kUnavailable, why};
  }
  runner_.submit(JobSubmitted{order});
  return tell_of(order.name);
}

Result<std::string> KeeperProcess::cancel(std::string_view body) {
  const std::string name(body);
  if (core_.job_called(name) == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 "no job called " + shortened(name, kNodeNameBytesMax) + " waits or runs"};
  }
  runner_.submit(JobCancelled{name});
  return tell_of(name);
}

// "queue cores gpus"
Result<std::string> KeeperProcess::set_quota(std::string_view body) {
  const size_t first = body.find(' ');
  const size_t second = first == std::string_view::npos ? first : body.find(' ', first + 1);
  QueueQuota quota{.queue = std::string(body.substr(0, first))};
  const auto cores = second == std::string_view::npos
                         ? std::nullopt
                         : parse_number<uint64_t>(body.substr(first + 1, second - first - 1));
  const auto gpus = cores ? parse_number<uint64_t>(body.substr(second + 1)) : std::nullopt;
  if (!gpus || !is_process_name(quota.queue) || quota.queue.size() > kNodeNameBytesMax) {
    return Error{ErrorCode::kInvalidArgument, "a quota is: QUEUE CORES GPUS"};
  }
  quota.cores = *cores;
  quota.gpus = *gpus;
  runner_.submit(QuotaSet{quota});
  return std::string("{}");
}

Result<std::string> KeeperProcess::tell_of(std::string_view body) const {
  const std::string name(body);
  const auto& jobs = core_.ledger().jobs;
  const auto last = std::find_if(jobs.rbegin(), jobs.rend(),
                                 [&](const PoolJob& job) { return job.order.name == name; });
  if (last == jobs.rend()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no job called " + shortened(name, kNodeNameBytesMax) + " is known"};
  }
  return job_json(*last);
}

void KeeperProcess::read_log(const std::string& process, std::optional<uint64_t> from,
                             const AdminPages::TextDone& done) {
  constexpr size_t kReadersMax = 64;
  const PoolJob* const job =
      process.starts_with("launcher-")
          ? core_.job_called(process.substr(std::string_view("launcher-").size()))
          : nullptr;
  if (job == nullptr || job->launcher.node.empty()) {
    return done(Error{ErrorCode::kNotFound, "it is no launcher of a job that runs: launcher-JOB"});
  }
  if (log_readers_.size() >= kReadersMax) {
    return done(Error{ErrorCode::kOverloaded, "too many logs are being read"});
  }
  log_readers_.emplace(++tickets_, done);
  cluster_->read_log({.ticket = tickets_,
                      .node = job->launcher.node,
                      .process = process,
                      .from = from.value_or(kLogEnd)});
}

// kCancelled: a signal came.
Result<JobFolder> wait_for_folder(net::EventLoop& loop, const JobConfig& as_job) {
  Result<JobFolder> folder = Error{ErrorCode::kCancelled, "stopped while another keeper ran"};
  const net::StopSignals signals(loop, std::array{SIGTERM, SIGINT, SIGHUP},
                                 [&](int /*signal*/) { loop.stop(); });
  net::TimerId timer{};
  bool told = false;
  const std::function<void()> attempt = [&] {
    auto claimed = JobFolder::claim(as_job, loop.now());
    const auto other = JobFolder::find(as_job.launcher.state_dir, as_job.name);
    if (claimed || (!other && other.error().code == ErrorCode::kNotFound)) {
      folder = std::move(claimed);
      loop.stop();
      return;
    }
    if (!std::exchange(told, true)) {
      log::info("another keeper of pool " + as_job.name + " runs" +
                (other ? ", pid " + std::to_string(other->pid) : "") + ": this one waits");
    }
    timer = loop.call_at(loop.now() + kStandbyLooks, attempt);
  };
  timer = loop.call_at(loop.now(), attempt);
  loop.run();
  loop.cancel(timer);
  return folder;
}

Result<int> serve(const KeeperOptions& options, const Places& places) {
  net::EventLoop loop;
  JobConfig as_job;
  as_job.name = options.pool;
  as_job.launcher.state_dir = keepers_dir(places);
  as_job.launcher.log_dir = usual_logs(as_job);
  auto folder =
      options.standby ? wait_for_folder(loop, as_job) : JobFolder::claim(as_job, loop.now());
  if (!folder) {
    return folder.error().during("pool " + options.pool);
  }
  auto ledger = read_ledger(folder->path() + kLedger);
  if (!ledger) {
    return ledger.error().during(folder->path() + kLedger);
  }
  ledger->build = build_version();
  ++ledger->keeper;
  KeeperProcess keeper(loop, options, places, *folder, *std::move(ledger));
  PDJOB_TRY_STATUS(keeper.open());
  loop.run();
  return kExitOk;
}

}  // namespace

std::string keepers_dir(const Places& places) { return default_state_dir(places) + "/keepers"; }

int run_keeper(const KeeperOptions& options, const Places& places) {
  net::block_signals();
  log::start("keeper", log::Level::kInfo);
  const Result<int> code = serve(options, places);
  if (!code) {
    std::fprintf(stderr, "pdjob keeper: %s\n", code.error().message.c_str());
  }
  return code ? *code : kExitFailed;
}

}  // namespace pdjob::launcher
