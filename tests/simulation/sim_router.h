// The simulated router process: the real Router core, in a shell that holds the results of legs
// until they are relayed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "router/core/router.h"
#include "tests/simulation/sim_worker.h"

namespace pdjob::simulation {

class SimRouter {
 public:
  SimRouter(SimWorld& world, const router::RouterConfig& config, uint64_t seed)
      : world_(world), config_(config), core_(config, seed) {}

  // Events from clients and the launcher.
  void arrive(const Ask& ask);
  void client_left(RequestId id);
  void on_workers_changed(const std::vector<net::WorkerEntry>& workers,
                          const std::vector<net::Departure>& left);
  void on_load(const std::string& name, Incarnation incarnation, const net::WorkerLoad& load);
  void drain();

  // Events from workers, over the connections of legs.
  void on_head(const router::LegAnswered& head);
  void on_chunk(const router::LegId& leg, const TokenChunk& chunk);
  void on_end(const router::LegId& leg, const std::optional<KvPlace>& place);
  // Returns whether this is the first end of the leg that the core heard of.
  bool on_broken(const router::LegId& leg, bool reached = true);

  // A connection breaks halfway. Both ends notice.
  void break_leg(uint64_t draw);

  bool idle() const { return core_.requests_alive() == 0 && legs_.empty(); }
  bool drained() const { return drained_; }
  uint64_t pairs_suspected() const { return pairs_suspected_; }
  uint64_t streams_continued() const { return streams_continued_; }

 private:
  struct Leg {
    Incarnation worker;
    std::optional<int> status;
    std::vector<TokenChunk> held;
    bool relayed = false;
    SimChannel to_worker;
  };

  void step(const router::RouterEvent& event);
  void wake_at(Instant when);
  void apply(const router::StartLeg& effect);
  void apply(const router::CancelLeg& effect);
  void apply(const router::ReleaseOffer& effect);
  void apply(const router::Relay& effect);
  void apply(const router::Complete& effect);
  void apply(const router::Refuse& effect);
  void apply(const router::Abort& effect);
  void apply(const router::Forget& effect);
  void apply(const router::LearnTokens& /*effect*/) {}  // Simulated workers report no caches.
  void apply(const router::Retried& /*effect*/) {}
  void apply(const router::PairSuspected& /*effect*/) { ++pairs_suspected_; }
  void apply(const router::OutOfRetries& /*effect*/) {}
  void apply(const router::Hedged& /*effect*/) {}
  void apply(const router::Degraded& /*effect*/) {}
  void apply(const router::Bypassed& /*effect*/) {}
  void apply(const router::Continued& /*effect*/) { ++streams_continued_; }
  void apply(const router::Blamed& /*effect*/) {}
  void apply(const router::Drained& /*effect*/) { drained_ = true; }

  bool learns_addresses() const { return config_.protocol == router::Protocol::kNixlPush; }
  Incarnation incarnation_of(WorkerId worker) const;
  Incarnation address_of(WorkerId worker) const;
  void pass_on(RequestId request, const TokenChunk& chunk);
  void close_at_worker(const router::LegId& id, Leg& leg);

  SimWorld& world_;
  const router::RouterConfig config_;
  router::Router core_;
  Instant wake_ = kNever;
  std::map<router::LegId, Leg> legs_;    // Those whose end the core has yet to see.
  std::map<RequestId, KvPlace> places_;  // From the reply of the newest prefill leg.
  // The tokens of each choice that the client has.
  std::map<RequestId, std::vector<std::vector<Token>>> passed_;
  bool drained_ = false;
  uint64_t pairs_suspected_ = 0;
  uint64_t streams_continued_ = 0;
};

}  // namespace pdjob::simulation
