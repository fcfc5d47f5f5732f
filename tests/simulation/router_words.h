// Events and effects of the router's core as short words, for traces.
#pragma once

#include <sstream>
#include <string>

#include "router/core/router.h"

namespace pdjob::simulation {

class RouterWording {
 public:
  std::string operator()(const router::RequestArrived& e) const { return text("arrived ", e.id); }
  std::string operator()(const router::LegAnswered& e) const {
    return text("answered ", leg(e.leg), ' ', e.status, e.kv_suspect ? " suspect" : "");
  }
  std::string operator()(const router::LegEnded& e) const { return text("ended ", leg(e.leg)); }
  std::string operator()(const router::LegFailed& e) const { return text("failed ", leg(e.leg)); }
  std::string operator()(const router::ClientLeft& e) const { return text("left ", e.id); }
  std::string operator()(const router::WorkersChanged& e) const {
    std::string names = "workers";
    for (const net::WorkerEntry& worker : e.workers) {
      names += text(' ', worker.name, '#', worker.engine_id);
    }
    for (const net::Departure& gone : e.left) {
      names += text(" -", gone.name, '#', gone.engine_id, ' ', net::to_string(gone.cause));
    }
    return names;
  }
  std::string operator()(const router::LoadChanged& e) const {
    return text("load ", e.name, ' ', e.load.tokens_queued);
  }
  std::string operator()(const router::WorkerProbed& e) const { return text("probed ", e.name); }
  std::string operator()(const router::NobodyThere&) const { return "nobody there"; }
  std::string operator()(const router::KvTold& e) const {
    return text("kv told by w", e.worker, ' ', e.events.size());
  }
  std::string operator()(const router::KvToldAnew& e) const {
    return text("kv anew by w", e.worker, e.complete ? " complete" : "");
  }
  std::string operator()(const router::TokensLearnt& e) const {
    return text("tokens learnt ", e.tokens.size());
  }
  std::string operator()(const router::DrainRequested&) const { return "drain"; }
  std::string operator()(const router::TimePassed&) const { return "time-passed"; }

  std::string operator()(const router::StartLeg& e) const {
    static constexpr const char* kKv[] = {"", " offer", " offer?", " fetch", " fetch?"};
    return text("start ", leg(e.leg), " on w", e.worker, kKv[static_cast<int>(e.kv)],
                e.resumes ? " resume" : "");
  }
  std::string operator()(const router::CancelLeg& e) const { return text("cancel ", leg(e.leg)); }
  std::string operator()(const router::ReleaseOffer& e) const {
    return text("release ", e.transfer, " of w", e.worker);
  }
  std::string operator()(const router::Relay& e) const { return text("relay ", leg(e.leg)); }
  std::string operator()(const router::Retried& e) const {
    return text("retry ", e.id, ' ', router::to_string(e.reason));
  }
  std::string operator()(const router::PairSuspected& e) const {
    return text("suspect w", e.prefill, " to w", e.decode);
  }
  std::string operator()(const router::OutOfRetries& e) const {
    return text("out of retries ", e.id);
  }
  std::string operator()(const router::Hedged& e) const {
    return text("hedge ", e.id, " of w", e.worker);
  }
  std::string operator()(const router::Degraded& e) const { return text("degraded ", e.id); }
  std::string operator()(const router::Bypassed& e) const { return text("bypassed ", e.id); }
  std::string operator()(const router::Continued& e) const { return text("continue ", e.id); }
  std::string operator()(const router::Complete& e) const { return text("complete ", e.id); }
  std::string operator()(const router::Refuse& e) const {
    return text("refuse ", e.id, ' ', e.error.status, ' ', e.error.message);
  }
  std::string operator()(const router::Abort& e) const { return text("abort ", e.id); }
  std::string operator()(const router::Forget& e) const { return text("forget ", e.id); }
  std::string operator()(const router::LearnTokens& e) const {
    return text("learn tokens of w", e.worker);
  }
  std::string operator()(const router::Blamed& e) const { return text("blame ", e.id); }
  std::string operator()(const router::Drained&) const { return "drained"; }

 private:
  template <class... Parts>
  static std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  }
  static std::string leg(const router::LegId& id) {
    return text(id.request, id.stage == router::Stage::kPrefill ? "/prefill#" : "/decode#",
                id.attempt);
  }
};

}  // namespace pdjob::simulation
