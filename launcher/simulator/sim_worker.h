// SimWorker: one life of one worker process: the production shells and cores of a worker, on the
// virtual loops of three threads. Its doubles are the engine (sim_engine.h), and the queues between
// the threads. A SimMember is one life of any process of a job.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics.h"
#include "kvtransfer/session/endpoint.h"
#include "launcher/simulator/sim_engine.h"
#include "launcher/simulator/sim_process.h"
#include "launcher/simulator/sim_sockets.h"
#include "net/control/control_channel.h"
#include "net/control/process_spec.h"
#include "net/http/http_server.h"
#include "worker/api/openai_api.h"
#include "worker/core/engine_loop.h"
#include "worker/core/engine_queue.h"
#include "worker/worker_member.h"

namespace pdjob::simulation {

struct SimWorkerOptions {
  net::ProcessSpec spec;
  Duration queue_timeout = std::chrono::seconds(4);
  bool two_hop = false;  // It does not tell its KV address in advance.
  worker::CoreFactory make_core;
  Duration commit_delay{};  // How much later a prefill worker's last word on a transfer comes.
  kvtransfer::KvTransferConfig kv;
  kvtransfer::TransportOpener open_transport;
  // Changes where it fetches from: it has a wrong address of this peer.
  std::function<void(kvtransfer::EndpointAddress& peer)> misdirect = {};
};

// Shared by all processes of a run.
struct SimScene {
  SimLoop& loop;
  SimSockets& http;
  SimSockets& kv;
  // Connects a process to its launcher; null: there is none.
  std::function<std::unique_ptr<net::ControlClient>(
      SimProcess& process, net::ControlClient::Handler& handler, const net::ProcessSpec& spec)>
      join;
};

class SimMember {
 public:
  virtual ~SimMember() = default;
  virtual SimProcess& process() = 0;
  // SIGTERM.
  virtual void terminate() = 0;
  // What is still alive in it; empty: nothing.
  virtual std::string busy_with() const = 0;
};

// The member's duties in a simulated process, with the launcher if the spec has one.
std::unique_ptr<net::JobMember> join_job(const SimScene& scene, SimProcess& process,
                                         net::JobMember::Handler& handler,
                                         const net::ProcessSpec& spec);

class SimWorker : public SimMember,
                  worker::EngineQueue,
                  kvtransfer::KvTransfers,
                  kvtransfer::LinkNetwork {
 public:
  // Calls `end` when the process ends by itself.
  SimWorker(const SimScene& scene, SimWorkerOptions options, std::unique_ptr<SimEngine> engine,
            uint64_t seed, std::function<void()> end);
  SimWorker(const SimWorker&) = delete;
  SimWorker& operator=(const SimWorker&) = delete;
  ~SimWorker() override;

  SimProcess& process() override { return process_; }
  SimEngine& engine() { return *engine_; }
  kvtransfer::EndpointStats kv_stats() const { return endpoint_.stats(); }
  net::WorkerLoad load() const { return api_->load(); }
  // The time that its steps have taken.
  Duration busy() const { return busy_; }
  void terminate() override;
  std::string busy_with() const override;
  uint64_t rows_reused() const { return rows_reused_; }

 private:
  class CountingCore;

  void prepare(const net::PrepareWeights& order);

  // The API's calls.
  Status submit(worker::GenerationRequest request) override;
  void cancel(RequestId request) override { command(worker::RequestCancelled{request}); }
  void release(TransferId transfer) override { command(worker::ReleaseOffer{transfer}); }
  worker::Standstill standstill() const override;

  // The engine's calls: they reach the KV thread.
  const kvtransfer::EndpointAddress& address() const override { return kv_address_; }
  void offer(TransferId id, kvtransfer::Region source, Instant deadline,
             kvtransfer::OfferTerms terms) override;
  void refuse(TransferId id, Error reason) override;
  void rows_ready(TransferId id, uint32_t ready) override;
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) override;
  void withdraw(TransferId id, Error reason) override;
  void await(TransferId id, kvtransfer::EndpointAddress peer, Instant until) override;
  void fetch(TransferId id, kvtransfer::EndpointAddress peer, kvtransfer::Region target,
             uint32_t rows, Instant deadline) override;
  void cancel(TransferId id) override;
  void tell(kvtransfer::EndpointAddress peer, kvtransfer::BlockNews news) override;
  void to_kv(std::function<void()> call) { kv_thread_->post_at(engine_now(), std::move(call)); }
  // The end of an offer.
  void end_of_offer(std::function<void()> call);

  Result<std::unique_ptr<kvtransfer::LinkSocket>> connect(
      const kvtransfer::EndpointAddress& peer,
      const kvtransfer::TransportTraits& transport) override;

  // The engine thread. A turn is computed at its beginning, and lasts until engine_now().
  void command(worker::EngineCommand command);
  void wake(Instant when);
  void turn();
  Instant engine_now();
  void take_outputs(worker::OutputBatch batch);

  const SimScene scene_;
  const SimWorkerOptions options_;
  SimProcess process_;
  const std::unique_ptr<SimThread> engine_thread_;
  const std::unique_ptr<SimThread> kv_thread_;
  const std::unique_ptr<SimEngine> engine_;
  worker::EngineLoop engine_loop_;
  kvtransfer::EndpointAddress kv_address_;
  kvtransfer::Endpoint endpoint_;
  Metrics metrics_;
  std::unique_ptr<worker::OpenaiApi> api_;
  std::unique_ptr<net::HttpServer> server_;
  std::optional<worker::WorkerMember> member_;
  net::JobMember* in_job_ = nullptr;  // The member's.

  std::vector<worker::EngineCommand> inbox_;
  Instant busy_until_{};
  Instant wakes_ = kNever;
  bool in_turn_ = false;
  Duration busy_{};
  uint64_t rows_reused_ = 0;
};

}  // namespace pdjob::simulation
