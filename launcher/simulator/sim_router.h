// SimRouter: one life of one router process: the production shells and core.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "launcher/simulator/sim_worker.h"
#include "net/control/process_spec.h"
#include "net/outbound/outbound_client.h"
#include "router/http_api.h"
#include "router/members/static_workers.h"
#include "router/router_member.h"

namespace pdjob::simulation {

struct SimRouterOptions {
  net::ProcessSpec spec;
  router::RouterConfig config;
  net::HttpAddress door;                      // Where clients come.
  std::vector<router::StaticWorker> workers;  // Of a job without a launcher.
};

class SimRouter final : public SimMember {
 public:
  // Calls `end` when the process ends by itself.
  SimRouter(const SimScene& scene, const SimRouterOptions& options, uint64_t seed,
            std::function<void()> end)
      : scene_(scene),
        process_(
            options.spec.engine_id,
            {.loop = scene.loop, .seed = seed, .streams = &scene.http, .host = options.door.host}),
        api_(*router::HttpApi::open(process_, no_outbound_client,
                                    router::in_job(options.config, options.spec),
                                    {.host = options.door.host,
                                     .port = options.door.port,
                                     .own_port = !options.spec.control.empty(),
                                     .shares_port = !options.spec.control.empty(),
                                     .accepts_later = !options.spec.control.empty()},
                                    [this] { member_.drained(); })),
        member_(process_, *api_, std::move(end)) {
    auto in_job = join_job(scene, process_, member_, options.spec);
    in_job_ = in_job.get();
    if (options.spec.control.empty()) {
      members_.emplace(
          process_, options.workers, "", options.config,
          [this](router::RouterEvent event) { api_->relay().submit(std::move(event)); });
    }
    if (options.spec.begins_closed) {
      member_.begin_closed();
    }
    member_.serve(std::move(in_job), {.name = options.spec.name,
                                      .engine_id = options.spec.engine_id,
                                      .role = net::Role::kRouter,
                                      .host = "127.0.0.1",  // The own port's.
                                      .port = api_->server().own_port()});
  }
  SimRouter(const SimRouter&) = delete;
  SimRouter& operator=(const SimRouter&) = delete;
  // As by kill -9.
  ~SimRouter() override {
    process_.die();
    scene_.http.forget(process_);
  }

  SimProcess& process() override { return process_; }
  void terminate() override {
    process_.post([this] { in_job_->stop(); });
  }
  std::string busy_with() const override {
    const size_t requests = core().requests_alive();
    const size_t exchanges = api_->server().replies_alive();
    return requests + exchanges == 0 ? ""
                                     : " " + std::to_string(requests) + " requests " +
                                           std::to_string(exchanges) + " exchanges";
  }
  const router::Router& core() const { return api_->relay().core(); }
  // A counter without labels.
  uint64_t metric(const std::string& name) {
    const std::string text = "\n" + api_->relay().watch().metrics_text();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
  }

 private:
  // A simulated job calls nobody outside.
  struct NoOutboundClient final : net::OutboundClient {
    net::OutboundId post(net::OutboundCall call, Then /*then*/) override {
      PDJOB_CHECK(false, "there is no world outside:", call.to.to_string());
    }
    void cancel(net::OutboundId /*id*/) override {}
  };
  static std::unique_ptr<net::OutboundClient> no_outbound_client(const std::string& /*ca_file*/) {
    return std::make_unique<NoOutboundClient>();
  }

  const SimScene scene_;
  SimProcess process_;
  std::unique_ptr<router::HttpApi> api_;
  router::RouterMember member_;
  std::optional<router::StaticWorkers> members_;
  net::JobMember* in_job_ = nullptr;  // The member's.
};

}  // namespace pdjob::simulation
