#include "worker/foreign/engine_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/address_text.h"
#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/os/run_delay.h"
#include "common/os/stack_dump.h"
#include "common/parse_number.h"
#include "engine/recipes/failure_cause.h"
#include "net/control/job_member.h"
#include "net/http/http_client.h"
#include "net/loop/child_process.h"
#include "net/loop/core_runner.h"
#include "net/loop/event_loop.h"
#include "openai/json/json_edit.h"
#include "worker/foreign/engine_guard.h"
#include "worker/foreign/engine_lists.h"
#include "worker/foreign/engine_log.h"
#include "worker/foreign/engine_place.h"
#include "worker/foreign/engine_supervisor.h"
#include "worker/foreign/engine_words.h"
#include "worker/foreign/port_claims.h"
#include "worker/foreign/port_wait.h"
#include "worker/foreign/weight_changer.h"

namespace pdjob::worker {
namespace {

// Longer than any answer of an engine that still works: while one is due, no new requests come.
constexpr Duration kAnswerTimeout = std::chrono::seconds(30);
constexpr size_t kErrorBytesMax = 300;
constexpr int kReadsPerTurn = 16;
// Between two looks at which processes the engine has.
constexpr Duration kProcessesInterval = std::chrono::seconds(5);
// Between two questions which models and adapters it has.
constexpr Duration kModelsInterval = std::chrono::seconds(2);
// A store that does not answer by then is left out.
constexpr Duration kStorePatience = std::chrono::seconds(30);
constexpr Duration kWorthSaying = std::chrono::milliseconds(10);

class EngineProcess final : net::JobMember::Handler, net::FdHandler {
 public:
  explicit EngineProcess(const ForeignWorkerOptions& options)
      : options_(options),
        recipe_(recipe_here(options.engine.foreign, options.spec.host)),
        store_(options.store),
        core_(rules()),
        client_(net::HttpClient::create(loop_)),
        runner_(loop_, core_, *this) {}

  ~EngineProcess() {
    loop_.cancel(cores_timer_);
    loop_.cancel(models_timer_);
    if (output_.valid()) {
      loop_.unwatch(output_.get());
    }
  }

  Status start() {
    adopt_orphans();
    if (options_.spec.listen_fd >= 0) {
      ::close(options_.spec.listen_fd);  // The engine has its own.
    }
    PDJOB_TRY_STATUS(prepare());
    PDJOB_TRY(member_, net::JobMember::open(loop_, *this, options_.spec, options_.drain_timeout));
    member_->watch_cores([this] {
      RunDelays delays = run_delays(getpid());
      delays.insert(delays_.begin(), delays_.end());
      return delays;
    });
    if (!options_.spec.weights.version.empty()) {
      make_changer();
    }
    look_at_cores();
    return ok();
  }

  int run() {
    runner_.submit(TimePassed{});
    loop_.run();
    return crash_ ? end_as(*crash_) : exit_code_;
  }

 private:
  using Runner =
      net::CoreRunner<EngineProcess, EngineSupervisor, SupervisorEvent, SupervisorEffect>;
  friend Runner;

  SupervisorRules rules() const {
    const bool follows = options_.spec.part > 0;
    std::vector<VersionNeed> needs;
    for (const std::string& name : options_.engine.foreign.features) {
      needs.push_back(
          {.what = name + " of engine.features", .since = recipe_.feature(name)->since});
    }
    if (const engine::RecipeStore* const store = recipe_.store(options_.store.kind)) {
      needs.push_back({.what = store->kind + " of kv_store", .since = store->since});
    }
    return {.make = recipe_.name,
            .warms_up = !follows && !recipe_.warm_up_path.empty(),
            .has_metrics = !follows && !recipe_.metrics.path.empty(),
            .follows = follows,
            .lease = options_.spec.role == net::Role::kPrefill ? options_.lease : Duration::zero(),
            // Before the launcher's own deadline, so that the reason is told.
            .start_timeout = options_.start_timeout - options_.start_timeout / 10,
            .needs = std::move(needs)};
  }

  // The key that clients show to the engine. A router of another make shows one key to all workers.
  std::string key() const {
    if (recipe_.key_environment.empty()) {
      return "";
    }
    return options_.spec.router_key.empty() ? options_.spec.key : options_.spec.router_key;
  }

  bool is_store() const { return options_.spec.role == net::Role::kStore; }

  // The engine listens here.
  const std::string& host() const { return command_.words.at("host"); }

  Status prepare() {
    const engine::ForeignConfig& config = options_.engine.foreign;
    engine::EngineValues values = engine_values(options_.spec, options_.engine, options_.lease);
    values.store = store_;
    values.interface = interface_of(values.host);
    std::vector<PortWish> wishes;
    const std::vector<uint16_t> own = engine::ports_of_user(recipe_, config, values);
    for (const engine::PortWord& word : engine::port_words(recipe_, values.shape)) {
      wishes.push_back({.port = own[wishes.size()], .count = word.count});
    }
    if (wishes.front().port == 0 && options_.spec.listen_fd < 0) {
      wishes.front().port = options_.spec.port;  // A worker started by hand.
    }
    const size_t start = engine::band_offset(config, options_.spec.ports_from);
    // All nodes of an engine must know some of these.
    const bool exactly = values.shape.nodes > 1;
    PDJOB_TRY(claims_, PortClaims::take(values.host, wishes, config.ports, start, exactly));
    values.ports = claims_->ports();
    const engine::RecipeStore* const store = recipe_.store(store_.kind);
    if (store != nullptr && !store->file.empty()) {
      PDJOB_TRY(store_file_, StoreFile::make());
      values.store_file = store_file_->path();
    }
    command_ = engine::engine_command(recipe_, config, values);
    PDJOB_TRY_STATUS(store_file_ ? store_file_->write(command_.store_file) : ok());
    PDJOB_TRY(std::string program,
              find_engine_program(config, is_store() ? "kv_store.programs" : "engine.program"));
    log::info((is_store() ? "the store: " : "the engine: ") +
              engine::shell_text(command_, recipe_.key_environment));
    // Python finds its packages by the path in argv[0].
    command_.argv.front() = std::move(program);
    return ok();
  }

  Status start_engine() {
    PDJOB_TRY(Pipe channel, open_pipe());
    PDJOB_TRY(Pipe output, open_pipe());
    fcntl(output.reading.get(), F_SETFL, O_NONBLOCK);
    net::ChildOptions child{.program = options_.guard_program,
                            .arguments = {"pdjob " + options_.spec.name + " guard", "guard-engine",
                                          std::to_string(channel.reading.get())},
                            .environment = command_.environment,
                            .inherited = {channel.reading.get()},
                            .output = output.writing.get()};
    child.arguments.insert(child.arguments.end(), command_.argv.begin(), command_.argv.end());
    if (!recipe_.key_environment.empty() && !key().empty()) {
      child.environment.emplace_back(recipe_.key_environment, key());
    }
    PDJOB_TRY(guard_, net::ChildProcess::start(
                          loop_, child, [this](const net::ChildExit& exit) { exited(exit); }));
    PDJOB_TRY_STATUS(loop_.watch(output.reading.get(), EPOLLIN, *this));
    channel_ = std::move(channel.writing);
    output_ = std::move(output.reading);
    return ok();
  }

  // Before each heartbeat, and while the engine starts.
  void look_at_cores() {
    if (loop_.now() >= processes_due_) {
      processes_due_ = loop_.now() + kProcessesInterval;
      processes_ = descendants_of(getpid());
    }
    RunDelays delays;
    for (const int64_t pid : processes_) {
      delays.merge(run_delays(pid));
    }
    if (const Duration waited = waits_between(delays_, delays).longest; waited > kWorthSaying) {
      runner_.submit(EngineStarved{waited});
    }
    delays_ = std::move(delays);
    cores_timer_ =
        loop_.call_at(loop_.now() + net::kHeartbeatInterval, [this] { look_at_cores(); });
  }

  void exited(const net::ChildExit& exit) {
    end_children();
    read_output();
    write_log(log_.finish(loop_.now()));
    if (exit.crashed()) {
      crash_ = exit;
    }
    runner_.submit(EngineExited{exit.how, engine::failure_cause(log_.last_lines())});
  }

  // --- the engine's output

  void on_ready(uint32_t /*epoll_events*/) override { read_output(); }

  // An engine that writes without end must not keep the loop from its other work: what is left
  // comes in the next turn.
  void read_output() {
    std::array<char, 16384> piece{};
    for (int i = 0; i < kReadsPerTurn && output_.valid(); ++i) {
      const ssize_t got = ::read(output_.get(), piece.data(), piece.size());
      if (got > 0) {
        write_log(log_.take({piece.data(), static_cast<size_t>(got)}, loop_.now()));
        continue;
      }
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        loop_.unwatch(output_.get());
        output_.reset();
      }
      return;
    }
  }

  static void write_log(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      log::info("| " + line);
    }
  }

  // --- the job

  // For other weights, routers have closed admission, and no request of a client runs.
  void on_drain(Duration within) override {
    if (changer_ && !member_->next().engine_id.empty()) {
      member_->drained();
    } else {
      runner_.submit(DrainAsked{within});
    }
  }
  void on_shutdown() override { runner_.submit(EndAsked{}); }
  void on_next_role(const net::Drain::Next& next) override {
    changer_ ? change_weights(next) : on_shutdown();
  }
  void on_control(const net::Message& message) override {
    if (const auto* order = std::get_if<net::PrepareWeights>(&message); order && changer_) {
      changer_->prepare(*order);
    }
  }
  // An engine that loads weights may answer nothing meanwhile.
  net::WorkerLoad current_load() override {
    net::WorkerLoad load = core_.load(loop_.now());
    load.standstill_ms = changer_ && changer_->changes() ? 0 : load.standstill_ms;
    return load;
  }

  // --- other weights

  void make_changer() {
    changer_.emplace(
        loop_, WeightChanger::Parts{.recipe = recipe_.weights,
                                    .weights_dir = options_.weights_dir,
                                    .model = options_.engine.model_path,
                                    .post =
                                        [this](const WeightCall& call, WeightChanger::Then then) {
                                          ask("POST", call.path, call.body, std::move(then),
                                              options_.start_timeout);
                                        },
                                    .answer =
                                        [this](net::WeightsPrepared answer) {
                                          answer.engine_id = self_.engine_id;
                                          member_->tell(answer);
                                        }});
  }

  // Then it registers as another engine: KV of the old weights has no peer.
  void change_weights(const net::Drain::Next& next) {
    changer_->change(next.weights_order, next.weight_version, [this, next](const Status& done) {
      if (!done) {
        return give_up_weights(done.error());
      }
      if (member_->next().engine_id != next.engine_id) {
        return on_shutdown();  // The launcher wants it to end now.
      }
      self_.engine_id = next.engine_id;
      self_.weight_version = next.weight_version;
      self_.model_digest = changer_->digest();
      log::info("the engine serves weights " + self_.weight_version);
      member_->rejoin(*this, self_);
    });
  }

  // Its launcher starts another one, with the weights that are due.
  void give_up_weights(const Error& error) {
    log::error("cannot take the weights: " + error.message);
    exit_code_ = kExitFailed;
    runner_.submit(EndAsked{});
  }

  // --- the core

  void stepped(const SupervisorEvent& /*event*/, const std::vector<SupervisorEffect>&) {}
  void carried_out(const SupervisorEvent& /*event*/) {}

  // Without its store, an engine would not start.
  void carry_out(const StartEngine& /*effect*/) {
    if (recipe_.store(store_.kind) == nullptr) {
      return start_now();
    }
    // The engine must start in the rest of the time.
    const Duration patience = std::min(kStorePatience, options_.start_timeout / 4);
    store_wait_.emplace(loop_, store_.host, store_.port, loop_.now() + patience,
                        [this](bool listens) { start_with_store(listens); });
  }

  void start_now() {
    if (const Status started = start_engine(); !started) {
      runner_.submit(EngineExited{started.error().message, ""});
    }
  }

  void start_with_store(bool listens) {
    if (!listens) {
      log::warn("no store of KV at " + address_text(store_.host, std::to_string(store_.port)) +
                ": the engine starts without one");
      store_ = {};
      if (const Status prepared = prepare(); !prepared) {
        return runner_.submit(EngineExited{prepared.error().message, ""});
      }
    }
    start_now();
  }

  void carry_out(const AskHealth& /*effect*/) {
    ask("GET", recipe_.ready_path, "", [this](const Result<net::HttpReply>& reply) {
      runner_.submit(HealthAnswered{!reply                 ? Health::kSilent
                                    : reply->status == 200 ? Health::kWell
                                                           : Health::kUnwell});
    });
  }

  void carry_out(const AskVersion& /*effect*/) {
    ask_version([this] { runner_.submit(VersionAnswered{version_}); });
  }

  // An engine whose model generates nothing lacks the route.
  void carry_out(const WarmUp& /*effect*/) {
    ask("POST", recipe_.warm_up_path, warm_up_body(command_.words.at("served_name")),
        [this](const Result<net::HttpReply>& reply) {
          generates_ = !reply || reply->status != 404;
          const std::string error = !reply ? reply.error().message
                                    : reply->status == 200 || !generates_
                                        ? ""
                                        : "status " + std::to_string(reply->status) + ": " +
                                              reply->body.substr(0, kErrorBytesMax);
          runner_.submit(WarmedUp{error});
        });
  }

  void carry_out(const AskLoad& /*effect*/) {
    ask("GET", recipe_.metrics.path, "", [this](const Result<net::HttpReply>& reply) {
      LoadAnswered answer{.answered = reply.has_value(), .sample = std::nullopt};
      if (reply && reply->status == 200) {
        answer.sample = read_sample(recipe_.metrics, reply->body);
      }
      if (answer.sample && !recipe_.metrics.in_flight_path.empty()) {
        ask_in_flight(answer);
      } else {
        runner_.submit(answer);
      }
    });
  }

  void ask_in_flight(LoadAnswered answer) {
    ask("GET", recipe_.metrics.in_flight_path, "",
        [this, answer](const Result<net::HttpReply>& reply) mutable {
          const std::array<std::string_view, 1> names{recipe_.metrics.in_flight_member};
          answer.answered = reply.has_value();
          if (const auto count =
                  reply && reply->status == 200
                      ? openai::JsonObject::scan(reply->body, names)
                      : Result<openai::JsonObject>(Error{ErrorCode::kUnavailable, ""})) {
            answer.sample->in_flight =
                parse_number<uint64_t>(count->value(names.front())).value_or(0);
          }
          runner_.submit(answer);
        });
  }

  // Registers once the engine has said what it serves.
  void carry_out(const Serve& /*effect*/) {
    self_ = {.name = options_.spec.name,
             .engine_id = options_.spec.engine_id,
             .role = options_.spec.role,
             .host = host(),
             .port = command_.port(),
             .model = command_.words.at("served_name"),
             .kv_address = command_.kv_address,
             .key = key(),
             .protocol = protocol_of(recipe_.protocol),
             .abort = recipe_.abort,
             .fingerprint = options_.fingerprint,
             .routes = engine::routes_of(recipe_, net::to_string(options_.spec.role)),
             .adapter_name = recipe_.adapter_name,
             .generates = generates_,
             .kv_events_port = command_.port_of("kv_events_port"),
             .kv_replay_port = command_.port_of("kv_replay_port"),
             .kv_ranks = engine::shape_of(options_.engine.foreign, false).data,
             .background_priority = engine::background_priority(recipe_, options_.engine.foreign)};
    if (!changer_) {
      return ask_routes();
    }
    self_.weight_version = options_.spec.weights.version;
    changer_->begin(options_.spec.weights, [this](const Status& done) {
      if (!done) {
        return give_up_weights(done.error());
      }
      self_.model_digest = changer_->digest();
      ask_routes();
    });
  }

  void ask_routes() {
    if (recipe_.routes.listed_in.empty() || self_.routes.empty()) {
      return ask_models();
    }
    ask("GET", recipe_.routes.listed_in, "", [this](const Result<net::HttpReply>& reply) {
      if (reply && reply->status == 200) {
        self_.routes = listed_routes(std::move(self_.routes), reply->body);
      }
      ask_models();
    });
  }

  // First before it registers, then now and then: somebody may load adapters.
  void ask_models() {
    if (recipe_.models_path.empty()) {
      return register_engine();
    }
    ask("GET", recipe_.models_path, "", [this](const Result<net::HttpReply>& reply) {
      const bool answered = reply && reply->status == 200;
      const auto listed = answered ? openai::parse_model_list(reply->body, recipe_.adapter_name)
                                   : openai::ListedModels{.adapters = self_.adapters};
      if (listed.adapters_left_out > 0 && left_out_line_.opens(loop_.now())) {
        log::warn("requests cannot name " + std::to_string(listed.adapters_left_out) +
                  " of the engine's adapters: there are too many, or their names are too long");
      }
      const bool changed = take_models(listed, self_);
      if (!registered_) {
        register_engine();
      } else if (changed && !member_->draining()) {
        log::info("the engine has " + std::to_string(self_.adapters.size()) + " adapters");
        member_->change(self_);
      }
      models_timer_ = loop_.call_at(loop_.now() + kModelsInterval, [this] { ask_models(); });
    });
  }

  void register_engine() {
    registered_ = true;
    member_->serve(self_);
    const std::string url = "http://" + address_text(host(), command_.port());
    log::info(recipe_.name + " serves as " + net::to_string(options_.spec.role) + " on " + url);
    if (version_.empty()) {
      ask_version([] {});
    }
    if (options_.spec.control.empty()) {
      std::printf("ready url=%s\n", url.c_str());  // Started by hand: stdout tells the port.
      std::fflush(stdout);
    }
  }

  void carry_out(const TerminateEngine& /*effect*/) {
    if (guard_) {
      ::kill(guard_->pid(), SIGTERM);
    }
  }

  void carry_out(const KillEngine& /*effect*/) {
    if (channel_.valid()) {
      channel_.reset();
    } else if (guard_) {
      guard_->signal(SIGKILL);
    }
  }

  void carry_out(const TellDrained& /*effect*/) { member_->drained(); }

  void carry_out(const EndWorker& effect) {
    if (!effect.error.empty()) {
      log::error(effect.error);
      exit_code_ = kExitFailed;
    }
    loop_.stop();
  }

  void carry_out(const SupervisorNote& effect) { log::info(effect.text); }

  // --- questions

  void ask_version(const std::function<void()>& then) {
    if (recipe_.version_path.empty()) {
      then();
      return;
    }
    ask("GET", recipe_.version_path, "", [this, then](const Result<net::HttpReply>& reply) {
      const std::array<std::string_view, 1> names{recipe_.version_member};
      const auto answer =
          reply && reply->status == 200
              ? openai::JsonObject::scan(reply->body, names)
              : Result<openai::JsonObject>(Error{ErrorCode::kUnavailable, "no answer"});
      const auto version =
          answer ? openai::json_string(answer->value(recipe_.version_member)) : std::nullopt;
      version_ = version ? version->substr(0, kErrorBytesMax) : "";
      log::info(recipe_.name + " has version " + (version_.empty() ? "unknown" : version_));
      then();
    });
  }

  void ask(std::string_view method, const std::string& path, const std::string& body,
           std::function<void(const Result<net::HttpReply>&)> then,
           Duration patience = kAnswerTimeout) {
    const std::string lines =
        authorization_line(key()) + (body.empty() ? "" : "Content-Type: application/json\r\n");
    const Duration timeout = body.empty() ? patience : options_.start_timeout;
    net::fetch(loop_, *client_,
               {.to = {.host = host(), .port = command_.port()},
                .method = method,
                .target = path,
                .header_lines = lines,
                .body = body,
                .head_timeout = timeout,
                .idle_timeout = timeout},
               limits::kEngineReplyBytesMax, std::move(then));
  }

  const ForeignWorkerOptions options_;
  const engine::EngineRecipe recipe_;
  engine::StoreUse store_;  // None: it uses none, or its store did not answer.
  EngineSupervisor core_;
  net::EventLoop loop_;
  const std::unique_ptr<net::HttpClient> client_;
  std::optional<PortClaims> claims_;
  std::optional<StoreFile> store_file_;
  std::optional<PortWait> store_wait_;
  engine::EngineCommand command_;
  std::string version_;  // Of the engine; empty: unknown.
  net::Fd channel_;      // The guard ends the engine once it is closed.
  net::Fd output_;
  EngineLog log_{access_lines(recipe_)};
  std::unique_ptr<net::ChildProcess> guard_;
  std::unique_ptr<net::JobMember> member_;
  net::WorkerEntry self_;  // What it registers.
  bool registered_ = false;
  bool generates_ = true;                 // WorkerEntry::generates.
  std::optional<WeightChanger> changer_;  // In a rollout job.
  WarnGate left_out_line_{std::chrono::minutes(10)};
  Runner runner_;
  std::vector<int64_t> processes_;  // Of the engine.
  Instant processes_due_{};
  RunDelays delays_;  // Of all its threads.
  net::TimerId cores_timer_;
  net::TimerId models_timer_;
  std::optional<net::ChildExit> crash_;  // The worker ends in the same way.
  int exit_code_ = kExitOk;
};

}  // namespace

int run_foreign_worker(const ForeignWorkerOptions& options) {
  net::block_signals();
  install_stack_dump();
  EngineProcess process(options);
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  return process.run();
}

}  // namespace pdjob::worker
