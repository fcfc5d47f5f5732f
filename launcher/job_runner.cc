#include "launcher/job_runner.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "launcher/placement/near_devices.h"
#include "launcher/plan/gpu_shares.h"

namespace pdjob::launcher {

namespace {

std::string host_of(const std::vector<Node>& nodes, const std::string& name) {
  const auto node = std::ranges::find(nodes, name, &Node::name);
  return node == nodes.end() ? "127.0.0.1" : node->host;  // It was lost just now; the spawn fails.
}

// What it sees of its node, and what is near that.
void add_part(const std::vector<Node>& nodes, const Demand& demand, const PlacePart& part,
              net::ProcessSpec& spec) {
  const NearDevices near = near_devices(nodes, part, demand);
  spec.gpus = gpus_text(part.gpus);
  spec.gpu_percent = demand.gpu_percent;
  spec.cpus = near.cpus;
  spec.memory_node = near.memory_node;
  spec.nics = near.nics_text();
}

constexpr Duration kDoorRetry = std::chrono::milliseconds(100);
constexpr Duration kDoorPatience = std::chrono::seconds(10);

// ", router-0, decode-0 and 7 more"
std::string process_names(const Job& job) {
  constexpr size_t kShownMax = 24;
  std::string text;
  size_t count = 0;
  for (const Process& process : job.processes()) {
    text += ++count <= kShownMax ? ", " + process.name : "";
  }
  return text + (count > kShownMax ? " and " + std::to_string(count - kShownMax) + " more" : "");
}

}  // namespace

std::string reachable(const std::string& host) {
  return host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
}

JobRunner::JobRunner(net::Loop& loop, Cluster& cluster, JobRunnerOptions options,
                     Observer& observer)
    : loop_(loop),
      options_(std::move(options)),
      ports_each_(engine_ports(options_.specs)),
      observer_(observer),
      cluster_(cluster),
      link_authority_(options_.root_key.derive("kv links")),
      job_(options_.processes, options_.timing, options_.nonce,
           {.nodes = cluster.nodes(),
            .groups = options_.groups,
            .foreign_router = options_.foreign_router,
            .weights = options_.weights,
            .store = options_.store,
            .launcher = options_.launcher,
            .record = options_.record}),
      prober_(loop,
              {.key = options_.foreign_router ? "" : probe_key(),
               .worker_key_of = [this](const std::string& name) { return shown_key(name); },
               .address_of = [this](const std::string& name) { return address_of(name); },
               .kv_received_by = [this](const std::string& name) { return kv_received_by(name); },
               .entry_of =
                   [this](const std::string& name) {
                     const Process* const process = job_.find(name);
                     return process == nullptr ? net::WorkerEntry{} : process->entry;
                   }},
              [this](const Event& event) { submit(event); }),
      runner_(loop, job_, *this) {
  cluster_.report_to(*this);
}

JobRunner::~JobRunner() { loop_.cancel(doors_timer_); }

void JobRunner::start(std::unique_ptr<net::ControlServer> control) {
  control_ = std::move(control);
  if (!options_.record) {
    open_next_door();
    return;
  }
  for (const Process& process : job_.processes()) {
    if (process.alive()) {
      control_->allow(process.name, control_keys(process.incarnation).public_key);
    }
  }
  submit(Started{});  // The doors follow when their node has joined.
}

void JobRunner::open_next_door() {
  const auto closed = std::ranges::find_if(
      options_.doors, [this](const Door& door) { return !doors_open_.contains(door.name); });
  if (closed != options_.doors.end()) {
    cluster_.open_door(*closed);
  } else if (options_.batch_door && !doors_open_.contains(options_.batch_door->name)) {
    cluster_.open_door(*options_.batch_door);
  } else {
    doors_are_open();
  }
}

void JobRunner::doors_are_open() {
  if (!std::exchange(doors_told_, true)) {
    observer_.on_doors_open(options_.doors.empty() ? 0 : options_.doors.front().port,
                            options_.batch_door ? options_.batch_door->port : 0);
    if (!options_.record) {
      submit(Started{});
    }
  }
  doors_due_ = kNever;
  if (const auto joined = std::exchange(joined_, std::nullopt)) {
    submit(*joined);
  }
}

void JobRunner::take(const DoorOpened& event) {
  doors_open_.insert(event.name);
  if (options_.batch_door && event.name == options_.batch_door->name) {
    options_.batch_door->port = event.port;
    open_next_door();
    return;
  }
  for (Door& door : options_.doors) {
    door.port = event.port;
  }
  open_next_door();
}

// A door that was open before may be held for a moment by a router that is just dying.
void JobRunner::take(const DoorFailed& event) {
  if (joined_ && loop_.now() < doors_due_) {
    loop_.cancel(doors_timer_);
    doors_timer_ = loop_.call_at(loop_.now() + kDoorRetry, [this] {
      if (joined_) {
        open_next_door();
      }
    });
  } else if (joined_ || !doors_told_) {
    observer_.on_door_failed(event.reason);
  }
}

// A node that holds doors may have come with all of them, or with none.
void JobRunner::take(const NodeJoined& event) {
  nodes_.clear();
  bool holds_doors = false;
  const auto look_for = [&](const Door& door) {
    if (door.node == event.node.name) {
      const auto found = event.doors.find(door.name);
      const bool open = found != event.doors.end() && found->second == door.port;
      open ? void(doors_open_.insert(door.name)) : void(doors_open_.erase(door.name));
      holds_doors = true;
    }
  };
  std::ranges::for_each(options_.doors, look_for);
  if (options_.batch_door) {
    look_for(*options_.batch_door);
  }
  if (!holds_doors || job_.state() >= JobState::kDraining) {
    submit(event);
    return;
  }
  joined_ = event;
  doors_due_ = loop_.now() + kDoorPatience;
  open_next_door();
}

void JobRunner::take(const NodeLost& event) {
  nodes_.clear();
  if (joined_ && joined_->node.name == event.name) {
    joined_.reset();
  }
  submit(event);
}

void JobRunner::read_log(const std::string& process, uint64_t from, LogReader done) {
  constexpr size_t kReadersMax = 64;
  const Process* const found = job_.find(process);
  if (found == nullptr || found->place.node.empty()) {
    done(Error{ErrorCode::kNotFound,
               process + (found == nullptr
                              ? " is no process of this job: it has launcher" + process_names(job_)
                              : " is on no node now")});
    return;
  }
  if (log_readers_.size() >= kReadersMax) {
    done(Error{ErrorCode::kOverloaded, "too many ask for logs"});
    return;
  }
  log_readers_.emplace(++log_tickets_, std::move(done));
  cluster_.read_log(
      {.ticket = log_tickets_, .node = found->place.node, .process = process, .from = from});
}

void JobRunner::take(const LogAnswered& event) {
  if (auto reader = log_readers_.extract(event.ticket)) {
    event.found ? reader.mapped()(event)
                : reader.mapped()(Error{ErrorCode::kNotFound, "there is no log yet"});
  }
}

std::string JobRunner::worker_key(const std::string& name) const {
  return options_.open_workers ? std::string() : options_.root_key.derive("worker http", name);
}

// A foreign router can show only one key, which all workers accept.
std::string JobRunner::router_key() const {
  return options_.foreign_router && !options_.open_workers ? options_.root_key.derive("router http")
                                                           : std::string();
}

net::HttpAddress JobRunner::address_of(const std::string& name) const {
  const Process* const process = job_.find(name);
  PDJOB_CHECK(process != nullptr, name);
  return {.host = reachable(process->entry.host), .port = process->entry.port};
}

// An engine of another make asks for one key only: the one with which it registered.
std::string JobRunner::shown_key(const std::string& name) const {
  const Process* const process = job_.find(name);
  const bool foreign = process != nullptr && process->is_foreign();
  return foreign ? process->entry.key : worker_key(name);
}

std::optional<uint64_t> JobRunner::kv_received_by(const std::string& name) const {
  const Process* const process = job_.find(name);
  return process != nullptr && process->is_foreign() ? std::optional(process->load.kv_received)
                                                     : std::nullopt;
}

void JobRunner::carry_out(const Spawn& effect) {
  const bool router = effect.role == net::Role::kRouter;
  const net::CurveKeys keys = control_keys(effect.incarnation);
  control_->allow(effect.name, keys.public_key);
  if (nodes_.empty()) {
    nodes_ = cluster_.nodes();
  }
  const std::vector<Node>& nodes = nodes_;
  SpawnOrder order{.node = effect.place.node, .incarnation = effect.incarnation};
  net::ProcessSpec& spec = order.spec;
  spec.job = options_.job;
  spec.name = effect.name;
  spec.role = effect.role;
  spec.engine_id = effect.engine_id;
  spec.model = effect.model;
  spec.host = router                             ? options_.doors.front().host
              : effect.role == net::Role::kBatch ? options_.batch_door->host
                                                 : host_of(nodes, effect.place.node);
  spec.control = {control_->endpoint(), control_->public_key(), keys};
  add_part(nodes, effect.demand, effect.place.parts().front(), spec);
  spec.router_key = router_key();
  add_batch_keys(spec);
  if (router) {
    spec.probe_key = probe_key();
    spec.begins_closed = !job_.weights().version.empty();
    spec.control_key = options_.control_key;
  } else if (effect.role != net::Role::kBatch) {
    spec.key = worker_key(effect.name);
    spec.weights = effect.weights;
    if (const Process* const master = job_.find(store::kMaster)) {
      spec.store_host = host_of(nodes, master->place.node);
    }
    spec.link_keys = encode(link_authority_.issue(effect.engine_id));
  }
  const auto work = options_.specs.work.find({effect.role, effect.model});
  spec.work = work == options_.specs.work.end() ? "" : work->second;
  spec.ports_from = ports_from(effect.incarnation);
  cluster_.spawn(order);
  spawn_other_parts(effect, nodes, std::move(order));
}

// As the plan shows them, where routers and stores start first. Peers remember the ports of a dead
// engine, so its successor has others.
uint64_t JobRunner::ports_from(Incarnation incarnation) const {
  const auto others = static_cast<uint64_t>(std::ranges::count_if(
      options_.processes, [](const ProcessPlan& each) { return !net::is_worker(each.role); }));
  return (incarnation.value - std::min(incarnation.value, others + 1)) * ports_each_;
}

// They talk to the first part alone, and to no router.
void JobRunner::spawn_other_parts(const Spawn& effect, const std::vector<Node>& nodes,
                                  SpawnOrder order) {
  net::ProcessSpec& spec = order.spec;
  spec.control = {};
  spec.key = spec.router_key = spec.link_keys = {};
  spec.head_host = spec.host;
  for (const PlacePart& part : effect.place.more) {
    spec.part += 1;
    spec.host = host_of(nodes, part.node);
    add_part(nodes, effect.demand, part, spec);
    order.node = part.node;
    cluster_.spawn(order);
  }
}

void JobRunner::set_specs(JobSpecs specs) {
  options_.specs = std::move(specs);
  ports_each_ = engine_ports(options_.specs);
}

// Routers and the Batch API's process show each other keys of their own.
void JobRunner::add_batch_keys(net::ProcessSpec& spec) const {
  if (!options_.batch_door) {
    return;
  }
  const auto at = [](const std::string& host, uint16_t port) {
    return net::HttpAddress{.host = reachable(host), .port = port}.to_string();
  };
  const std::string key = options_.root_key.derive("batch http");
  if (spec.role == net::Role::kRouter) {
    spec.batch_address = at(options_.batch_door->host, options_.batch_door->port);
    spec.batch_key = key;
  } else if (spec.role == net::Role::kBatch) {
    spec.front_address = (options_.https ? "https://" : "") +
                         at(options_.doors.front().host, options_.doors.front().port);
    spec.key = key;
  } else {
    return;
  }
  spec.rows_key = options_.root_key.derive("batch rows");
}

// A worker that changes its role is another engine on KV links.
void JobRunner::carry_out(Send& effect) {
  auto* const drain = std::get_if<net::Drain>(&effect.message);
  if (drain != nullptr && !drain->next.engine_id.empty()) {
    drain->next.link_keys = encode(link_authority_.issue(drain->next.engine_id));
  }
  control_->send(effect.peer, effect.message);
}

void JobRunner::carry_out(const CloseDoors& /*effect*/) {
  for (const std::string& door : doors_open_) {
    cluster_.close_door(door);
  }
}

}  // namespace pdjob::launcher
