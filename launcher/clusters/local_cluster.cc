#include "launcher/clusters/local_cluster.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"
#include "common/config/number_list.h"
#include "common/log.h"
#include "common/os/affinity.h"
#include "common/os/machine_share.h"
#include "engine/threads/thread_board.h"
#include "launcher/clusters/gpu_slices.h"
#include "launcher/clusters/machine_topology.h"
#include "launcher/clusters/topology_here.h"
#include "launcher/clusters/vital_signs.h"
#include "launcher/plan/gpu_shares.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kLogsLookedAt = std::chrono::seconds(5);  // How often.

Result<net::Fd> memfd_with(const std::string& text) {
  net::Fd fd(memfd_create("pdjob-spec", MFD_CLOEXEC));
  if (!fd.valid()) {
    return system_error("memfd_create");
  }
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t more = write(fd.get(), text.data() + written, text.size() - written);
    if (more <= 0) {
      return system_error("write the process spec");
    }
    written += static_cast<size_t>(more);
  }
  if (lseek(fd.get(), 0, SEEK_SET) != 0) {
    return system_error("lseek");
  }
  return fd;
}

// Numbers GPUs as CUDA does; the numbers of the device files do not matter.
std::vector<std::string> usable_gpus() {
  if (const char* const setting = std::getenv(kVisibleGpus); setting != nullptr) {
    return gpus_of_setting(setting);
  }
  if (has_gpu_slices("")) {
    auto gpus = gpus_with_slices(printed_by("nvidia-smi", {"-L"}, std::chrono::seconds(10)));
    if (!gpus.empty()) {
      return gpus;
    }
    log::warn("nvidia-smi -L does not name the slices (MIG) of this machine's GPUs");
  }
  std::vector<std::string> gpus;
  const size_t files = gpu_device_files();
  while (gpus.size() < files) {
    gpus.push_back(std::to_string(gpus.size()));
  }
  return gpus;
}

int number_of(Signal signal) {
  switch (signal) {
    case Signal::kTerminate:
      return SIGTERM;
    case Signal::kKill:
      return SIGKILL;
    case Signal::kDumpStacks:
      return SIGQUIT;
  }
  PDJOB_CHECK(false, static_cast<int>(signal));
}

const char* command_of(net::Role role) {
  switch (role) {
    case net::Role::kRouter:
      return "router";
    case net::Role::kBatch:
      return "batch-server";
    case net::Role::kStore:
      return "store";
    case net::Role::kPrefill:
    case net::Role::kDecode:
    case net::Role::kBoth:
      break;
  }
  return "worker";
}

}  // namespace

LocalCluster::LocalCluster(net::EventLoop& loop, Options options)
    : loop_(loop), options_(std::move(options)) {
  bound_logs();
  if (const auto threads = engine::ThreadBoard::create(options_.node.cores)) {
    threads_ = net::Fd(*threads);
  } else {
    log::warn("workers lend each other no threads: " + threads.error().message);
  }
}

LocalCluster::~LocalCluster() { loop_.cancel(log_timer_); }

void LocalCluster::bound_logs() {
  options_.logs.bound();
  log_timer_ = loop_.call_at(loop_.now() + kLogsLookedAt, [this] { bound_logs(); });
}

Node LocalCluster::this_node(const OperatorBound& bound) {
  MachineShare share = machine_share();
  share.bound_cores(bound.cores, bound.cores_by);
  share.bound_memory(bound.memory_bytes, bound.memory_by);
  std::vector<std::string> gpus = usable_gpus();
  NodeTopology topology = topology_here(gpus);
  return {.name = kNodeName,
          .host = "127.0.0.1",
          .cores = share.cores(),
          .cores_bound = share.cores_bound,
          .memory_bytes = share.memory_bytes,
          .memory_bound = share.memory_bound,
          .gpus = std::move(gpus),
          .overcommits = true,
          .topology = std::move(topology)};
}

std::vector<RunningProcess> LocalCluster::running() const {
  std::vector<RunningProcess> running;
  for (const auto& [incarnation, child] : children_) {
    running.push_back({incarnation, child->pid()});
  }
  return running;
}

std::vector<std::pair<std::string, uint16_t>> LocalCluster::doors() const {
  std::vector<std::pair<std::string, uint16_t>> doors;
  for (const auto& [name, socket] : doors_) {
    doors.emplace_back(name, net::local_port(socket.get()));
  }
  return doors;
}

void LocalCluster::tell(ClusterEvent event) {
  loop_.post([this, alive = std::weak_ptr(alive_), event = std::move(event)] {
    if (!alive.expired()) {
      PDJOB_CHECK(handler_ != nullptr);
      handler_->on_cluster_event(event);
    }
  });
}

void LocalCluster::open_door(const Door& door) {
  close_door(door.name);
  Result<net::Fd> socket = net::listen_on(door.host, door.port, door.use);
  if (!socket) {
    tell(DoorFailed{door.name, socket.error().message});
    return;
  }
  tell(DoorOpened{door.name, net::local_port(socket->get())});
  doors_.emplace(door.name, std::move(*socket));
}

void LocalCluster::spawn(const SpawnOrder& order) {
  const Result<int64_t> pid = start(order);
  if (pid) {
    tell(Spawned{order.incarnation, *pid, options_.node.name});
  } else {
    tell(SpawnFailed{order.incarnation, pid.error().message, options_.node.name});
  }
}

Result<int64_t> LocalCluster::start(const SpawnOrder& order) {
  net::ProcessSpec spec = order.spec;
  net::Fd own;  // Closed here once the process has it: when it is dead, it refuses connections.
  if (const auto door = doors_.find(spec.name); door != doors_.end()) {
    spec.listen_fd = door->second.get();
  } else {
    PDJOB_TRY(own, net::listen_on(spec.host, 0));
    spec.listen_fd = own.get();
  }
  spec.port = net::local_port(spec.listen_fd);
  std::vector<int> inherited = {spec.listen_fd};
  if (net::is_worker(spec.role) && threads_.valid()) {
    spec.threads_fd = threads_.get();
    inherited.push_back(spec.threads_fd);
  }
  PDJOB_TRY(const net::Fd spec_fd, memfd_with(net::encode_spec(spec)));
  inherited.push_back(spec_fd.get());
  PDJOB_TRY(const net::Fd log_fd, options_.logs.open(spec.name));
  net::ChildOptions child{.program = options_.program,
                          .arguments = {"pdjob " + spec.name,
                                        spec.command.empty() ? command_of(spec.role) : spec.command,
                                        "--spec-fd", std::to_string(spec_fd.get())},
                          .inherited = std::move(inherited),
                          .output = log_fd.get()};
  if (!spec.gpus.empty()) {
    child.environment.emplace_back(kVisibleGpus, spec.gpus);
  }
  if (spec.gpu_percent < kWholeGpu) {
    child.environment.emplace_back(kMpsThreads, std::to_string(spec.gpu_percent));
  }
  child.affinity = Affinity(parse_number_list(spec.cpus).value_or(NumberList()),
                            parse_number_list(spec.memory_node).value_or(NumberList()));
  const Incarnation incarnation = order.incarnation;
  PDJOB_TRY(auto started,
            net::ChildProcess::start(loop_, child, [this, incarnation](const net::ChildExit& exit) {
              children_.erase(incarnation);
              tell(ProcessExited{incarnation, exit.how, exit.crashed(), options_.node.name});
            }));
  const pid_t pid = started->pid();
  children_.emplace(incarnation, std::move(started));
  return static_cast<int64_t>(pid);
}

void LocalCluster::signal(const std::string& /*node*/, Incarnation incarnation, Signal signal) {
  if (const auto child = children_.find(incarnation); child != children_.end()) {
    child->second->signal(number_of(signal));
  }
}

void LocalCluster::look_at(const std::string& /*node*/, Incarnation incarnation) {
  const auto child = children_.find(incarnation);
  if (child == children_.end()) {
    return;
  }
  if (const auto signs = vital_signs_with_descendants(child->second->pid(), loop_.exact_now())) {
    tell(ProcessSeen{incarnation, *signs, options_.node.name});
  }
}

void LocalCluster::read_log(const LogQuestion& question) {
  auto piece = options_.logs.read(question.process, question.from, kLogPieceBytesMax);
  LogAnswered answer{.ticket = question.ticket, .found = piece.has_value()};
  if (piece) {
    answer.from = piece->from;
    answer.text = std::move(piece->text);
  }
  tell(std::move(answer));
}

}  // namespace pdjob::launcher
