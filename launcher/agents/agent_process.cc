#include "launcher/agents/agent_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/log.h"
#include "common/random.h"
#include "launcher/agents/agent_keys.h"
#include "launcher/agents/agent_session.h"
#include "launcher/agents/agent_wire.h"
#include "launcher/agents/node_address.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/clusters/log_folder.h"
#include "net/control/process_spec.h"
#include "net/loop/core_runner.h"
#include "net/loop/signals.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kSessionWarningsMax = 64;  // Different ones of a session; more are not said.
constexpr Duration kLastWords = std::chrono::milliseconds(500);  // To leave after the end.
constexpr Duration kLockLookedAt = std::chrono::seconds(1);      // How often.
constexpr Duration kLauncherTried = std::chrono::seconds(3);     // Before the next of several.
constexpr Duration kLauncherComes = std::chrono::seconds(20);    // To an agent of its own.

std::string shortened(std::string text) {
  text.resize(std::min(text.size(), kAgentTextBytesMax));
  return text;
}

Node node_of(const AgentOptions& options) {
  Node node = LocalCluster::this_node({.cores = options.cores,
                                       .cores_by = "--cores",
                                       .memory_bytes = options.memory_bytes,
                                       .memory_by = "--memory"});
  if (!options.granted.empty() && options.cores > 0) {
    node.cores = options.cores;
    node.cores_bound = options.granted;
  }
  node.gpu_parts = options.gpu_parts;
  if (!options.granted.empty() && options.memory_bytes > 0) {
    node.memory_bytes = options.memory_bytes;
    node.memory_bound = options.granted;
  }
  return node;
}

AgentHello hello_of(const AgentOptions& options, const Node& node) {
  AgentHello hello{.name = options.name,
                   .instance = entropy(),
                   .build = options.build,
                   .cores = node.cores,
                   .cores_bound = node.cores_bound,
                   .memory_bytes = node.memory_bytes,
                   .memory_bound = node.memory_bound,
                   .gpus = node.gpus,
                   .gpu_parts = node.gpu_parts,
                   .labels = options.labels,
                   .topology = node.topology};
  hello.gpus.resize(std::min(hello.gpus.size(), kNodeFactsMax));
  hello.topology.gpus.resize(std::min(hello.topology.gpus.size(), kNodeFactsMax));
  return hello;
}

class AgentProcess final : net::CurveClient::Handler, Cluster::Handler, net::FdHandler {
 public:
  AgentProcess(net::EventLoop& loop, const AgentOptions& options)
      : loop_(loop),
        options_(options),
        node_(node_of(options)),
        core_(hello_of(options, node_)),
        runner_(loop, core_, *this),
        signals_(loop, std::array{SIGTERM, SIGINT, SIGHUP},
                 [this](int signal) { stop("signal " + std::to_string(signal)); }) {}
  ~AgentProcess() {
    if (options_.lifeline >= 0) {
      loop_.unwatch(options_.lifeline);
    }
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  Status open() {
    PDJOB_TRY_STATUS(open_client());
    if (options_.join.size() > 1) {
      look_for_another();
    }
    if (options_.lifeline >= 0) {
      PDJOB_TRY_STATUS(loop_.watch(options_.lifeline, EPOLLIN | EPOLLRDHUP, *this));
    }
    if (options_.lock >= 0) {
      if (!write_pid(options_.lock)) {
        return Error{ErrorCode::kUnavailable, "cannot write the lock file"};
      }
      std::error_code ignored;
      lock_path_ =
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(options_.lock), ignored)
              .string();
      hold_lock();
      loop_.call_at(loop_.now() + kLauncherComes, [this] {
        if (!session_) {
          stop("the absence of its launcher");
        }
      });
    }
    return ok();
  }

  using Runner = net::CoreRunner<AgentProcess, AgentSession, AgentEvent, AgentEffect>;
  friend Runner;

 private:
  // What runs for one launcher. Its end kills every process and closes every door.
  struct Session {
    Session(net::EventLoop& loop, LogFolder folder, const Node& node)
        : logs(std::move(folder)), cluster(loop, {.logs = logs, .node = node}) {}
    LogFolder logs;
    LocalCluster cluster;
    std::string host;  // Its processes listen there.
  };

  const net::HttpAddress& joined() const { return options_.join[at_]; }

  Status open_client() {
    const AgentKeys keys = AgentKeys::of(options_.key);
    client_.reset();
    PDJOB_TRY(client_,
              net::CurveClient::open(
                  loop_, *this,
                  {.endpoint = net::tcp_endpoint(joined().host, std::to_string(joined().port)),
                   .server_public_key = keys.launcher.public_key,
                   .keys = keys.agent,
                   .queue = net::CurveClient::Options::Queue::kOnlyConnected,
                   .linger = kLastWords}));
    return ok();
  }

  // A launcher that nobody hears may be dead, or stand still.
  void look_for_another() {
    loop_.call_at(loop_.now() + kLauncherTried, [this] { look_for_another(); });
    const bool served = core_.state() == AgentSession::State::kServing;
    if (served || !std::exchange(unserved_, true)) {
      unserved_ = !served;
      return;
    }
    at_ = (at_ + 1) % options_.join.size();
    runner_.submit(LauncherDisconnected{});
    if (const Status opened = open_client(); !opened) {
      log::warn(opened.error().message);
    }
  }

  void stop(const std::string& why) {
    log::info("stopped by " + why);
    runner_.submit(AgentStopped{});
    loop_.stop();
  }

  static bool write_pid(int file) {
    const std::string pid = std::to_string(getpid()) + "\n";
    return ftruncate(file, 0) == 0 &&
           pwrite(file, pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
  }

  // Where the job's folder was removed and its launcher made it anew, the next launcher must find
  // the lock there.
  void hold_lock() {
    loop_.call_at(loop_.now() + kLockLookedAt, [this] { hold_lock(); });
    struct stat found{};
    if (stat(lock_path_.c_str(), &found) == 0 || errno != ENOENT) {
      return;
    }
    const net::Fd lock(
        ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && write_pid(lock.get()) &&
        dup3(lock.get(), options_.lock, O_CLOEXEC) >= 0) {
      log::warn("the job's folder was removed: the lock is held in the new one");
    }
  }

  void warn_once(const std::string& text) {
    if (told_.size() < kSessionWarningsMax && told_.insert(text).second) {
      log::warn(text);
    }
  }

  // The lifeline: bytes mean nothing, its end means everything.
  void on_ready(uint32_t /*epoll_events*/) override {
    std::array<char, 256> ignored{};
    const ssize_t got = ::read(options_.lifeline, ignored.data(), ignored.size());
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      stop("the end of its reservation");
    }
  }

  // --- the launcher
  void on_bytes(const std::string& bytes) override {
    auto frame = decode_agent_frame(std::as_bytes(std::span(bytes.data(), bytes.size())));
    if (frame) {
      runner_.submit(FrameArrived{std::move(*frame)});
    } else {
      warn_once(frame.error().message);
    }
  }
  void on_connected() override {
    log::info("connected to a launcher");
    runner_.submit(LauncherConnected{});
  }
  void on_disconnected() override {
    log::info("disconnected");
    runner_.submit(LauncherDisconnected{});
  }
  void on_refused() override {
    log::warn(
        "the launcher and this agent do not prove themselves to each other: compare the key files");
  }

  // --- the processes
  void on_cluster_event(const ClusterEvent& event) override {
    std::visit([this](const auto& body) { tell(body); }, event);
  }
  void tell(const NodeJoined& /*event*/) {}
  void tell(const NodeLost& /*event*/) {}
  void tell(DoorFailed event) {
    event.reason = shortened(event.reason);
    runner_.submit(OutcomeKnown{std::move(event)});
  }
  void tell(SpawnFailed event) {
    event.reason = shortened(event.reason);
    runner_.submit(OutcomeKnown{std::move(event)});
  }
  template <class Outcome>
  void tell(const Outcome& event) {
    runner_.submit(OutcomeKnown{event});
  }

  // --- what the core wants
  void stepped(const AgentEvent& /*event*/, const std::vector<AgentEffect>& /*effects*/) {}
  void carried_out(const AgentEvent& /*event*/) {
    if (options_.lock >= 0 && served_ && !session_) {
      loop_.stop();
    }
  }
  void carry_out(const SendFrame& effect) { client_->send(encode(effect.frame)); }
  void carry_out(const BeginSession& effect);
  void carry_out(const AdoptSession& /*effect*/) {
    const std::vector<RunningProcess> running = session_->cluster.running();
    log::info("a new launcher of the job adopts " + std::to_string(running.size()) + " processes");
    runner_.submit(SessionBegan{
        {.host = session_->host, .running = running, .doors = session_->cluster.doors()}});
  }
  void carry_out(const EndSession& effect) {
    if (session_) {
      log::info("ending everything: " + effect.why);
      session_.reset();
    }
  }
  void carry_out(const CarryOut& effect) {
    std::visit([this](const auto& order) { obey(order); }, effect.order);
  }
  void carry_out(const SayRefused& effect) {
    warn_once("the launcher refused this agent: " + effect.reason);
  }
  void carry_out(const SayIgnored& effect) {
    warn_once("launcher " + std::to_string(effect.launcher) +
              " of the job is ignored: a later one has taken over");
  }
  void carry_out(const SayOrphaned& effect) {
    log::warn(effect.why + ": everything ends in " +
              std::to_string(effect.left / std::chrono::seconds(1)) + " s unless a launcher comes");
  }
  void carry_out(const SayResumed& /*effect*/) { log::info("the launcher is back"); }

  void obey(const OpenDoor& order) {
    session_->cluster.open_door(
        {.name = order.name,
         .node = options_.name,
         .host = order.host,
         .port = order.port,
         .use = order.shared ? net::PortUse::kShared : net::PortUse::kAlone});
  }
  void obey(const CloseDoor& order) { session_->cluster.close_door(order.name); }
  void obey(const StartProcess& order);
  void obey(const SignalProcess& order) {
    session_->cluster.signal(options_.name, {order.incarnation}, order.signal);
  }
  void obey(const LookAtProcess& order) {
    session_->cluster.look_at(options_.name, {order.incarnation});
  }
  void obey(const ReadLog& order) {
    session_->cluster.read_log({.ticket = order.ticket,
                                .node = options_.name,
                                .process = order.process,
                                .from = order.from});
  }
  template <class Message>
  void obey(const Message& /*message*/) {}

  Result<std::string> own_address(const std::string& choice) const {
    const std::string& wanted = options_.host.empty() ? choice : options_.host;
    return wanted.empty() ? address_towards(joined().host, joined().port)
                          : address_by_choice(wanted);
  }

  net::EventLoop& loop_;
  const AgentOptions& options_;
  const Node node_;  // This machine, as it was when the agent started.
  AgentSession core_;
  std::optional<Session> session_;
  size_t at_ = 0;               // Of the launchers that it may join.
  bool unserved_ = false;       // At the last look.
  bool served_ = false;         // A session has begun.
  std::string lock_path_;       // Of options_.lock.
  std::set<std::string> told_;  // Warnings of this session.
  Runner runner_;
  net::StopSignals signals_;
  std::unique_ptr<net::CurveClient> client_;
};

void AgentProcess::carry_out(const BeginSession& effect) {
  told_.clear();
  const auto address = own_address(effect.welcome.host);
  if (!address) {
    log::warn(address.error().message);
    runner_.submit(SessionImpossible{shortened(address.error().message)});
    return;
  }
  auto logs = LogFolder::claim(options_.log_dir, effect.welcome.job);
  if (!logs) {
    log::warn(logs.error().message);
    runner_.submit(SessionImpossible{shortened(logs.error().message)});
    return;
  }
  session_.emplace(loop_, std::move(*logs), node_);
  session_->cluster.report_to(*this);
  session_->host = *address;
  served_ = true;
  log::info("serving job " + effect.welcome.job + "; its processes listen on " + *address);
  runner_.submit(SessionBegan{{.host = *address, .running = {}, .doors = {}}});
}

void AgentProcess::obey(const StartProcess& order) {
  auto spec = net::decode_spec(order.spec);
  if (!spec || !is_process_name(spec->name)) {
    runner_.submit(
        OutcomeKnown{SpawnFailed{{order.incarnation}, "the agent cannot read the process's spec"}});
    return;
  }
  session_->cluster.spawn(
      {.node = options_.name, .incarnation = {order.incarnation}, .spec = std::move(*spec)});
}

}  // namespace

int run_agent(const AgentOptions& options) {
  net::block_signals();
  log::start("agent", log::Level::kInfo);
  net::EventLoop loop;
  AgentProcess agent(loop, options);
  if (const Status opened = agent.open(); !opened) {
    std::fprintf(stderr, "pdjob agent: %s\n", opened.error().message.c_str());
    return kExitFailed;
  }
  std::string places;
  for (const net::HttpAddress& join : options.join) {
    places +=
        (places.empty() ? "" : " or ") + net::tcp_endpoint(join.host, std::to_string(join.port));
  }
  log::info("agent of node " + options.name + ", waiting for a launcher at " + places);
  loop.run();
  return kExitOk;
}

}  // namespace pdjob::launcher
