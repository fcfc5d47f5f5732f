// SimRouter: one life of one router process: the production shells and core.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "net/control/process_spec.h"
#include "router/http_api.h"
#include "router/router_member.h"
#include "tests/simulation/sim_worker.h"

namespace pdjob::simulation {

class SimRouter final : public SimMember {
 public:
  // `door`: where clients come. Calls `end` when the process ends by itself.
  SimRouter(const SimScene& scene, const net::ProcessSpec& spec, router::RouterConfig config,
            const net::HttpAddress& door, uint64_t seed, std::function<void()> end)
      : scene_(scene),
        process_(spec.engine_id,
                 {.loop = scene.loop, .seed = seed, .streams = &scene.http, .host = door.host}),
        api_(*router::HttpApi::open(
            process_, {}, router::in_job(std::move(config), spec),
            {.host = door.host, .port = door.port, .own_port = true, .accepts_later = true},
            [this] { member_.drained(); })),
        member_(process_, *api_, std::move(end)) {
    auto in_job = join_job(scene, process_, member_, spec);
    in_job_ = in_job.get();
    member_.serve(std::move(in_job), {.name = spec.name,
                                      .engine_id = spec.engine_id,
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
    const size_t exchanges = api_->server().exchanges_alive();
    return requests + exchanges == 0 ? ""
                                     : " " + std::to_string(requests) + " requests " +
                                           std::to_string(exchanges) + " exchanges";
  }
  const router::Router& core() const { return api_->relay().core(); }
  // A counter without labels.
  uint64_t metric(const std::string& name) {
    const std::string text = "\n" + api_->relay().metrics_text();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
  }

 private:
  const SimScene scene_;
  SimProcess process_;
  std::unique_ptr<router::HttpApi> api_;
  router::RouterMember member_;
  net::JobMember* in_job_ = nullptr;  // The member's.
};

}  // namespace pdjob::simulation
