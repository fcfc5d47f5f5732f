#include "router/external/external_process.h"

#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <unistd.h>

#include "common/address_text.h"
#include "common/exit_code.h"
#include "common/limits.h"
#include "common/log.h"
#include "net/control/job_member.h"
#include "net/control/member_list.h"
#include "net/http/http_client.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"
#include "net/loop/tcp_relay.h"
#include "router/external/external_router.h"
#include "router/members/static_workers.h"

namespace pdjob::router {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr Duration kAnswerTimeout = std::chrono::seconds(5);
constexpr size_t kAnswerBytesMax = 4 * limits::kMiB;

// The port is free only at this moment. If another process takes it first, the router ends and is
// restarted with another port.
Result<uint16_t> free_port() {
  PDJOB_TRY(const net::Fd socket, net::listen_on(kLoopback, 0));
  return net::local_port(socket.get());
}

class ExternalProcess final : net::JobMember::Handler {
 public:
  ExternalProcess(const RouterOptions& options, RouterRecipe recipe)
      : options_(options),
        recipe_(std::move(recipe)),
        core_(recipe_, options.plain),
        client_(net::HttpClient::create(loop_)) {}

  Status start() {
    PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(options_.config.listen));
    PDJOB_TRY(relay_, net::TcpRelay::open(loop_, {.host = listen.host,
                                                  .port = listen.port,
                                                  .listen_fd = options_.spec.listen_fd,
                                                  .wait = options_.config.queue_timeout}));
    PDJOB_TRY(member_,
              net::JobMember::open(loop_, *this, options_.spec, options_.config.drain_timeout));
    host_ = options_.spec.listen_fd >= 0 ? options_.spec.host : listen.host;
    if (options_.spec.control.empty()) {
      members_.emplace(loop_, options_.workers, options_.worker_key, options_.config,
                       [this](const RouterEvent& event) {
                         if (const auto* changed = std::get_if<WorkersChanged>(&event)) {
                           step(MembersChanged{++static_version_, changed->workers});
                         }
                       });
    }
    member_->serve({.name = options_.spec.name,
                    .engine_id = options_.spec.engine_id,
                    .role = net::Role::kRouter,
                    .host = host_,
                    .port = relay_->port()});
    return ok();
  }

  int run() {
    loop_.run();
    return exit_code_;
  }

 private:
  struct Running {
    RecipeValues values;
    std::unique_ptr<net::ChildProcess> child;
    std::map<std::string, std::string> ids;  // The router's ids of its workers, by name.
  };

  // --- the job

  void on_drain(Duration /*within*/) override {
    relay_->stop_accepting();
    step(DrainAsked{});
  }

  void on_shutdown() override { loop_.stop(); }

  net::WorkerLoad current_load() override {
    return {.requests_running = static_cast<uint32_t>(relay_->connections())};
  }

  void on_control(const net::Message& message) override {
    if (const auto* membership = std::get_if<net::Membership>(&message)) {
      if (member_list_.take(*membership)) {
        step(MembersChanged{membership->version, member_list_.serving()});
      }
    }
  }

  // --- the core

  void step(ExternalEvent event) {
    events_.push_back(std::move(event));
    if (events_.size() > 1) {
      return;  // An effect of the current step caused it.
    }
    for (; !events_.empty(); events_.pop_front()) {
      std::vector<ExternalEffect> effects;
      core_.step(events_.front(), loop_.now(), effects);
      for (const ExternalEffect& effect : effects) {
        std::visit([this](const auto& body) { apply(body); }, effect);
      }
    }
    loop_.cancel(wakeup_);
    if (const Instant when = core_.next_wakeup(); when != kNever) {
      wakeup_ = loop_.call_at(when, [this] { step(TimePassed{}); });
    }
  }

  void apply(const StartInstance& effect) {
    if (const Status started = start_instance(effect); !started) {
      running_.erase(effect.instance);
      log::error("cannot start " + recipe_.name + ": " + started.error().message);
      step(InstanceExited{effect.instance, started.error().message});
    }
  }

  Status start_instance(const StartInstance& effect) {
    Running& running = running_[effect.instance];
    RecipeValues& values = running.values;
    values.host = kLoopback;
    values.model = effect.workers.front().model;
    for (uint16_t* port : {&values.port, &values.spare_port}) {
      PDJOB_TRY(*port, free_port());
    }
    std::vector<std::string> command =
        recipe_command(recipe_, values, effect.workers, options_.plain);
    command.insert(command.end(), options_.config.args.begin(), options_.config.args.end());
    // Python finds its packages by the path in argv[0].
    PDJOB_TRY(command.front(), find_router_program(options_.config, recipe_, options_.plain));
    std::string line;
    for (const std::string& argument : command) {
      line += ' ' + argument;
    }
    log::info("starting" + line);
    net::ChildOptions child{.program = command.front(), .arguments = std::move(command)};
    for (const std::string& variable : recipe_.environment) {
      const size_t equals = variable.find('=');
      child.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
    }
    if (!recipe_.key_environment.empty() && !options_.spec.router_key.empty()) {
      child.environment.emplace_back(recipe_.key_environment, options_.spec.router_key);
    }
    PDJOB_TRY(running.child,
              net::ChildProcess::start(
                  loop_, child, [this, instance = effect.instance](const net::ChildExit& exit) {
                    exited(instance, exit.how);
                  }));
    return ok();
  }

  void exited(InstanceId instance, const std::string& how) {
    log::info("instance " + std::to_string(instance.value) + " of " + recipe_.name +
              " has ended: " + how);
    const auto ended = running_.extract(instance);
    client_->forget(address_of(ended.mapped()));
    step(InstanceExited{instance, how});
  }

  void apply(const EndInstance& effect) {
    if (const Running* running = find(effect.instance)) {
      running->child->signal(effect.at_once ? SIGKILL : SIGTERM);
    }
  }

  void apply(const CheckReady& effect) {
    ask(effect.instance, "GET", recipe_.ready_path, "",
        [this, instance = effect.instance](const Result<net::HttpReply>& reply) {
          step(ReadyChecked{instance, reply && reply->status == 200});
        });
  }

  void apply(const ReadMembers& effect) {
    ask(effect.instance, "GET", recipe_.members_path, "",
        [this, instance = effect.instance](const Result<net::HttpReply>& reply) {
          step(members_read(instance, reply));
        });
  }

  MembersRead members_read(InstanceId instance, const Result<net::HttpReply>& reply) {
    MembersRead read{.instance = instance};
    if (!reply || reply->status != 200) {
      return read;
    }
    auto members = members_in(recipe_, reply->body);
    if (!members) {
      log::warn(recipe_.name +
                " names its workers in a way that is not understood: " + members.error().message);
      return read;
    }
    read.names.emplace();
    for (const auto& [name, id] : *members) {
      read.names->insert(name);
    }
    if (Running* running = find(instance)) {
      running->ids = std::move(*members);
    }
    return read;
  }

  void apply(const TellOf& effect) {
    const Running* running = find(effect.instance);
    if (running == nullptr) {
      return;
    }
    const auto id = running->ids.find(effect.name);
    const RecipeCall call = recipe_call(recipe_, effect.added ? recipe_.add : recipe_.remove,
                                        effect.worker, id == running->ids.end() ? "" : id->second);
    const std::string what = call.method + " " + call.path + " " + call.body;
    ask(effect.instance, call.method, call.path, call.body,
        [this, what](const Result<net::HttpReply>& reply) {
          if (!reply || reply->status >= 300) {
            log::warn(recipe_.name + " refuses " + what + ": " +
                      (reply ? std::to_string(reply->status) + " " + reply->body
                             : reply.error().message));
          }
        });
  }

  void apply(const PassTo& effect) {
    const Running* running = effect.instance ? find(*effect.instance) : nullptr;
    if (running == nullptr) {
      log::warn(recipe_.name + " does not serve: connections wait");
      relay_->pass_to(std::nullopt);
      return;
    }
    const auto address = net::resolve(kLoopback, running->values.port, net::HostForm::kNumeric);
    PDJOB_CHECK(address.has_value());
    relay_->pass_to(address->front());
    log::info(recipe_.name + " serves on http://" + address_text(host_, relay_->port()));
    if (options_.spec.control.empty() && !std::exchange(announced_, true)) {
      // Started by hand: the reader of the pipe learns the port.
      std::printf("ready url=http://%s\n", address_text(host_, relay_->port()).c_str());
      std::fflush(stdout);
    }
  }

  void apply(const MembersApplied& effect) { member_->membership_applied(effect.version); }

  void apply(const ExternalDrained&) { member_->drained(); }

  void apply(const GiveUp& effect) {
    log::error(recipe_.name + " does not start: " + effect.reason);
    exit_code_ = kExitFailed;
    on_shutdown();
  }

  // --- calls

  static net::HttpAddress address_of(const Running& running) {
    return {.host = running.values.host, .port = running.values.port};
  }

  Running* find(InstanceId instance) {
    const auto found = running_.find(instance);
    return found == running_.end() ? nullptr : &found->second;
  }

  void ask(InstanceId instance, const std::string& method, const std::string& path,
           const std::string& body, std::function<void(Result<net::HttpReply>)> then) {
    const Running* running = find(instance);
    if (running == nullptr) {
      return;
    }
    net::fetch(loop_, *client_,
               {.to = address_of(*running),
                .method = method,
                .target = path,
                .header_lines = body.empty() ? "" : "Content-Type: application/json\r\n",
                .body = body,
                .connect_timeout = kAnswerTimeout,
                .head_timeout = kAnswerTimeout,
                .idle_timeout = kAnswerTimeout},
               kAnswerBytesMax, std::move(then));
  }

  const RouterOptions& options_;
  const RouterRecipe recipe_;
  std::string host_;
  ExternalRouter core_;
  net::MemberList member_list_;  // As the launcher publishes them.
  net::EventLoop loop_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<InstanceId, Running> running_;
  std::unique_ptr<net::TcpRelay> relay_;
  std::unique_ptr<net::JobMember> member_;
  std::optional<StaticWorkers> members_;
  uint64_t static_version_ = 0;
  std::deque<ExternalEvent> events_;
  net::TimerId wakeup_{};
  bool announced_ = false;
  int exit_code_ = kExitOk;
};

}  // namespace

Result<std::string> find_router_program(const RouterConfig& config, const RouterRecipe& recipe,
                                        bool plain) {
  PDJOB_TRY_STATUS(serves(recipe, plain));
  const std::vector<std::string>& command = plain ? recipe.plain_command : recipe.command;
  auto program = net::find_program(config.program.empty() ? command.front() : config.program);
  if (!program && !recipe.install.empty()) {
    return Error{program.error().code, program.error().message + ": " + recipe.install +
                                           ", or name it in router.program"};
  }
  return program;
}

int run_external_router(const RouterOptions& options) {
  net::block_signals();
  Result<RouterRecipe> recipe = find_recipe(options.config.recipe);
  const Result<std::string> program =
      recipe ? find_router_program(options.config, *recipe, options.plain) : recipe.error();
  if (!program) {
    log::error("cannot start: " + program.error().message);
    return kExitFailed;
  }
  ExternalProcess process(options, std::move(*recipe));
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  return process.run();
}

}  // namespace pdjob::router
