#include "router/router_process.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "common/exit_code.h"
#include "common/log.h"
#include "net/control/job_member.h"
#include "net/control/member_list.h"
#include "net/loop/event_loop.h"
#include "router/external/external_process.h"
#include "router/http_api.h"
#include "router/members/kv_events_api.h"

namespace pdjob::router {
namespace {

// A decode worker's step sends one token to each of its streams, one after the other. Handling them
// together costs half as much, and a delay of 50 us is not noticeable.
constexpr Duration kTurnInterval = std::chrono::microseconds(50);

// A crash report waits until the loop has read the ends of the connections that the crash broke.
constexpr Duration kCrashWordWait = std::chrono::milliseconds(10);

// Adds the settings of a job: its workers have keys, and its launcher reports why workers were
// lost. With tenants, the launcher is one of them.
RouterOptions in_job(RouterOptions options) {
  options.config.probe_key = options.spec.probe_key;
  options.config.hears_losses = !options.spec.control.empty();
  if (!options.config.tenants.empty() && !options.spec.probe_key.empty()) {
    options.config.tenants.push_back(probe_tenant(options.spec.probe_key));
  }
  options.config.own_keys = !options.spec.control.empty() || !options.worker_key.empty();
  return options;
}

class RouterProcess final : net::JobMember::Handler {
 public:
  explicit RouterProcess(const RouterOptions& options) : options_(in_job(options)) {}

  Status start() {
    loop_.pace_turns(kTurnInterval);
    PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(options_.config.listen));
    PDJOB_TRY(api_,
              HttpApi::open(loop_, options_.config,
                            {.host = listen.host,
                             .port = listen.port,
                             .listen_fd = options_.spec.listen_fd,
                             .own_port = options_.config.replicas > 1,
                             // In a job, clients wait until the workers are known.
                             .accepts_later = !options_.spec.control.empty(),
                             .held_bytes_max = options_.config.request_bytes_max,
                             .account_held_bytes_max = options_.config.tenant_request_bytes_max},
                            [this] { finish_drain(); }));
    PDJOB_TRY_STATUS(listen_to_engines());
    PDJOB_TRY(member_,
              net::JobMember::open(loop_, *this, options_.spec, options_.config.drain_timeout));
    const std::string& host = options_.spec.listen_fd >= 0 ? options_.spec.host : listen.host;
    const uint16_t port = api_->server().port();
    // If routers share the address, only this router's own port can be probed and scraped.
    const bool shared = options_.config.replicas > 1;
    self_ = {.name = options_.spec.name,
             .engine_id = options_.spec.engine_id,
             .role = net::Role::kRouter,
             .host = shared ? "127.0.0.1" : host,
             .port = api_->server().own_port()};
    if (options_.spec.control.empty()) {
      members_.emplace(loop_, options_.workers, options_.worker_key, options_.config,
                       [this](RouterEvent event) { take_event(std::move(event)); });
      // Started by hand: the reader of the pipe learns the port.
      std::printf("ready url=http://%s:%u\n", host.c_str(), port);
      std::fflush(stdout);
    }
    member_->serve(self_);
    log::info("routing on http://" + host + ':' + std::to_string(port));
    return ok();
  }

  void run() { loop_.run(); }

 private:
  Status listen_to_engines() {
    if (listens_to_kv(options_.config)) {
      kv_events_.emplace(loop_, api_->relay(), options_.config, options_.workers);
    }
    for (const StaticWorker& worker : options_.workers) {
      if (worker.kv_events_port > 0 && options_.config.kv_events.port == 0) {
        return Error{
            ErrorCode::kInvalidArgument,
            "kv_events_port of " + worker.address.to_string() + ": set router.kv_events.port, too"};
      }
    }
    return ok();
  }

  void on_drain(Duration within) override {
    if (std::exchange(draining_, true)) {
      return;
    }
    log::info("draining");
    api_->server().stop_accepting();
    loop_.call_at(loop_.now() + within, [this] {
      log::warn("drain deadline passed with requests alive");
      on_shutdown();
    });
    api_->drain();
  }

  void finish_drain() {
    member_->drained();
    linger();
  }

  // The last replies are still being written.
  void linger() {
    if (api_->server().exchanges_alive() == 0) {
      on_shutdown();
    } else {
      loop_.call_at(loop_.now() + std::chrono::milliseconds(5), [this] { linger(); });
    }
  }

  void on_shutdown() override { loop_.stop(); }

  net::WorkerLoad current_load() override {
    const Router& core = api_->relay().core();
    const size_t queued = core.requests_queued();
    return {.requests_running = static_cast<uint32_t>(core.requests_alive() - queued),
            .requests_queued = static_cast<uint32_t>(queued)};
  }

  void on_control(const net::Message& message) override {
    if (const auto* membership = std::get_if<net::Membership>(&message)) {
      take_membership(*membership);
    } else if (const auto* load = std::get_if<net::LoadReported>(&message)) {
      api_->relay().submit(LoadChanged{load->name, load->engine_id, load->load});
    }
  }

  // Events of a router without a launcher.
  void take_event(RouterEvent event) {
    if (const auto* changed = std::get_if<WorkersChanged>(&event)) {
      api_->members().publish({.routers = {self_}, .workers = changed->workers});
    }
    api_->relay().submit(std::move(event));
  }

  void take_membership(const net::Membership& membership) {
    if (!member_list_.take(membership)) {
      return;
    }
    log::info("membership version " + std::to_string(membership.version) + ": " +
              std::to_string(member_list_.workers().size()) + " workers");
    api_->members().publish({.routers = member_list_.routers(), .workers = member_list_.serving()});
    told_.push_back({{member_list_.workers(), membership.left}, membership.version});
    const bool waits = told_.size() > 1 ||
                       std::ranges::any_of(membership.left, [](const net::Departure& departure) {
                         return departure.cause == net::LossCause::kCrash;
                       });
    if (!waits) {
      apply_memberships();
    } else if (told_.size() == 1) {
      loop_.call_at(loop_.now() + kCrashWordWait, [this] { apply_memberships(); });
    }
  }

  void apply_memberships() {
    for (; !told_.empty(); told_.pop_front()) {
      api_->relay().submit(std::move(told_.front().change));
      if (!std::exchange(accepting_, true) && !draining_) {
        api_->server().start_accepting();
      }
      member_->membership_applied(told_.front().version);
    }
  }

  const RouterOptions options_;
  net::EventLoop loop_;
  net::WorkerEntry self_;
  std::unique_ptr<HttpApi> api_;
  std::optional<KvEventsApi> kv_events_;
  std::unique_ptr<net::JobMember> member_;
  std::optional<StaticWorkers> members_;
  net::MemberList member_list_;
  // Waits until the broken connections of a crash have been read: the core blames requests for no
  // others.
  struct Told {
    WorkersChanged change;
    uint64_t version = 0;
  };
  std::deque<Told> told_;
  bool accepting_ = false;
  bool draining_ = false;
};

}  // namespace

int run_router(const RouterOptions& options) {
  if (options.config.kind == RouterKind::kCommand) {
    return run_external_router(options);
  }
  net::block_signals();
  RouterProcess process(options);
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  process.run();
  return kExitOk;
}

}  // namespace pdjob::router
