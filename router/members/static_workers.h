// StaticWorkers: membership for a router without a launcher. It asks the given addresses what
// StaticMembers wants to know, and passes on what that core tells the router. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"
#include "router/members/static_members.h"

namespace pdjob::router {

class StaticWorkers {
 public:
  // `key`: the key of all workers; empty: they want none. Asks at once; `submit` is called later.
  StaticWorkers(net::Loop& loop, const std::vector<StaticWorker>& workers, const std::string& key,
                const RouterConfig& config, std::function<void(RouterEvent)> submit);

 private:
  using Runner =
      net::CoreRunner<StaticWorkers, StaticMembers, StaticMembers::Event, StaticMembers::Effect>;
  friend Runner;

  void stepped(const StaticMembers::Event& /*event*/,
               const std::vector<StaticMembers::Effect>& /*effects*/) {}
  void carried_out(const StaticMembers::Event& /*event*/) {}
  void carry_out(const StaticMembers::Ask& effect);
  void carry_out(StaticMembers::Tell& effect) { submit_(std::move(effect.event)); }
  void carry_out(const StaticMembers::Left& effect) { client_->forget(effect.address); }
  void carry_out(const StaticMembers::Note& effect);
  StaticMembers::Answered::How how(const Result<net::HttpReply>& reply) const;

  net::Loop& loop_;
  const std::string key_line_;
  const std::function<void(RouterEvent)> submit_;
  const std::unique_ptr<net::HttpClient> client_;
  StaticMembers core_;
  Runner runner_{loop_, core_, *this};
};

}  // namespace pdjob::router
