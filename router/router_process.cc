#include "router/router_process.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "common/address_text.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "net/control/job_member.h"
#include "net/http/own_names.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"
#include "net/tls/server_tls.h"
#include "router/external/external_process.h"
#include "router/http_api.h"
#include "router/members/kv_events_api.h"
#include "router/router_member.h"

namespace pdjob::router {
namespace {

// A decode worker's step sends one token to each of its streams, one after the other. Handling them
// together costs half as much, and a delay of 50 us is not noticeable.
constexpr Duration kTurnInterval = std::chrono::microseconds(50);

RouterOptions with_job(RouterOptions options) {
  options.config = in_job(std::move(options.config), options.spec);
  options.config.own_keys = options.config.own_keys || !options.worker_key.empty();
  return options;
}

class RouterProcess {
 public:
  explicit RouterProcess(const RouterOptions& options) : options_(with_job(options)) {}

  Status start() {
    loop_.pace_turns(kTurnInterval);
    PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(options_.config.listen));
    if (options_.config.tls.on()) {
      // Before any thread starts, or that thread might get the signal.
      hangup_.emplace(loop_, std::array{SIGHUP}, [this](int /*signal*/) {
        if (watch_) {
          watch_->reload();
        }
      });
      PDJOB_TRY(tls_, net::ServerTls::open(options_.config.tls));
    }
    const bool in_a_job = !options_.spec.control.empty();
    // If routers share the address, only this router's own port can be probed and scraped. The
    // launcher speaks no TLS, so it needs that port, too.
    const bool own_port = options_.config.replicas > 1 || (tls_ != nullptr && in_a_job);
    PDJOB_TRY(api_,
              HttpApi::open(loop_, net::outbound_clients(loop_), options_.config,
                            {.host = listen.host,
                             .port = listen.port,
                             .listen_fd = options_.spec.listen_fd,
                             .own_port = own_port,
                             .shares_port = options_.config.replicas > 1,
                             .tls = tls_.get(),
                             .own_names_only =
                                 options_.config.tenants.empty() && net::is_loopback(listen.host),
                             // In a job, clients wait until the workers are known.
                             .accepts_later = in_a_job,
                             .held_bytes_max = options_.config.request_bytes_max,
                             .account_held_bytes_max = options_.config.tenant_request_bytes_max},
                            [this] { member_->drained(); }));
    member_.emplace(loop_, *api_, [this] { loop_.stop(); });
    if (options_.config.control.on) {
      PDJOB_TRY_STATUS(api_->take_orders(
          options_.config.control, [this](const net::OrderAsked& order) { member_->ask(order); }));
      member_->on_answer([this](const net::OrderAnswered& answer) { api_->answered(answer); });
    }
    member_->on_work(options_.read_work);
    if (options_.spec.begins_closed) {
      member_->begin_closed();
    }
    PDJOB_TRY_STATUS(listen_to_engines());
    PDJOB_TRY(auto in_job,
              net::JobMember::open(loop_, *member_, options_.spec, options_.config.drain_timeout));
    const std::string& host = options_.spec.listen_fd >= 0 ? options_.spec.host : listen.host;
    const uint16_t port = api_->server().port();
    self_ = {.name = options_.spec.name,
             .engine_id = options_.spec.engine_id,
             .role = net::Role::kRouter,
             .host = own_port ? "127.0.0.1" : host,
             .port = api_->server().own_port()};
    const std::string url = (tls_ ? "https://" : "http://") + address_text(host, port);
    if (tls_) {
      watch_certificate();
    }
    if (!in_a_job) {
      members_.emplace(loop_, options_.workers, options_.worker_key, options_.config,
                       [this](RouterEvent event) { take_event(std::move(event)); });
      // Started by hand: the reader of the pipe learns the port.
      std::printf("ready url=%s\n", url.c_str());
      std::fflush(stdout);
    }
    member_->serve(std::move(in_job), self_);
    log::info("routing on " + url);
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

  void watch_certificate() {
    tell_certificate("serves");
    api_->relay().watch().count_handshakes(*tls_);
    watch_.emplace(loop_, *tls_, [this](net::ServerTls::Look look) {
      api_->relay().metrics().certificate_looked(look);
      if (look == net::ServerTls::Look::kRefused) {
        log::warn("the new certificate is refused, and the old one stays: " + tls_->refusal());
      } else {
        tell_certificate("serves new connections");
      }
    });
  }

  void tell_certificate(const char* what) {
    constexpr int64_t kDay = int64_t{24} * 3600;
    const net::CertificateFacts& facts = tls_->certificate();
    const int64_t days = (facts.not_after - loop_.unix_seconds()) / kDay;
    const std::string line = std::string("certificate ") + facts.subject + ' ' + what +
                             (facts.not_after <= loop_.unix_seconds()
                                  ? "; it has expired"
                                  : "; it expires in " + std::to_string(days) + " days");
    days < 7 ? log::warn(line) : log::info(line);
  }

  // Events of a router without a launcher.
  void take_event(RouterEvent event) {
    if (const auto* changed = std::get_if<WorkersChanged>(&event)) {
      api_->members().publish({.routers = {self_}, .workers = changed->workers});
    }
    api_->relay().submit(std::move(event));
  }

  const RouterOptions options_;
  net::EventLoop loop_;
  net::WorkerEntry self_;
  std::unique_ptr<net::ServerTls> tls_;  // Outlives api_.
  std::unique_ptr<HttpApi> api_;
  std::optional<KvEventsApi> kv_events_;
  std::optional<RouterMember> member_;
  std::optional<StaticWorkers> members_;
  std::optional<net::CertificateWatch> watch_;
  std::optional<net::StopSignals> hangup_;
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
