// The workers of the KV world: one life of one process. It hands rows over, and exchanges blocks
// with a store. It checks what the endpoint promises (kv_endpoint.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/simulation/kv_block_user.h"
#include "tests/simulation/kv_process.h"
#include "tests/simulation/kv_rows.h"
#include "tests/simulation/kv_targets.h"

namespace pdjob::simulation {

class KvWorker final {
 public:
  // A slow one has turns of milliseconds.
  KvWorker(KvScene& scene, const std::string& name, bool slow, uint64_t seed);
  KvWorker(const KvWorker&) = delete;
  KvWorker& operator=(const KvWorker&) = delete;
  ~KvWorker() { die(); }

  SimProcess& process() { return process_.loop(); }
  const kvtransfer::EndpointAddress& address() const { return process_.address(); }
  void die() { process_.die(); }
  void trace(const std::string& what) const { process_.trace(what); }
  KvBlockUser& blocks() { return blocks_; }

  // --- as a prefill worker
  void offer(TransferId id);
  void rows_ready(TransferId id, uint32_t rows);
  void commit(TransferId id, uint32_t rows);
  void withdraw(TransferId id);

  // --- as a decode worker
  void await(TransferId id, const kvtransfer::EndpointAddress& peer, Instant until);
  // Returns false if no memory is free, or the transfer is being fetched.
  bool fetch(TransferId id, const kvtransfer::EndpointAddress& peer, uint32_t rows,
             Instant deadline);
  void cancel(TransferId id);

  // At the end, nothing is alive. All writes to memory came before it was given on. `lied`: peers
  // lost messages, so a grant may wait as long as its link lives.
  void check_idle(bool lied) const;

 private:
  void on(const kvtransfer::OfferAwaited& /*event*/) {}
  void on(const kvtransfer::OfferDone& event);
  void on(const kvtransfer::OfferFailed& event);
  void on(const kvtransfer::FetchDone& event);
  void on(const kvtransfer::FetchFailed& event);
  void on(const kvtransfer::FetchReleased& event);
  void on(const kvtransfer::BlocksTold& /*event*/) {}
  void end_offer(TransferId id);

  KvScene& scene_;
  std::map<TransferId, KvRows> offers_;
  KvProcess process_;
  KvTargets targets_;
  KvBlockUser blocks_;
};

}  // namespace pdjob::simulation
