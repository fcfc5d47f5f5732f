// OutboundRowClient: sends rows to a server behind https, whose certificate must be trusted.
// Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "batch/row_client.h"
#include "net/loop/event_loop.h"
#include "net/outbound/outbound_client.h"

namespace pdjob::batch {

class OutboundRowClient final : public RowClient {
 public:
  OutboundRowClient(net::EventLoop& loop, const RowServer& server);
  ~OutboundRowClient() override;
  OutboundRowClient(const OutboundRowClient&) = delete;
  OutboundRowClient& operator=(const OutboundRowClient&) = delete;

  void start(Attempt attempt, const Then& then) override;
  void cancel(AttemptId attempt) override;
  // Calls `then` with 0: such a server tells no workers.
  void count_workers(std::function<void(size_t)> then) override;

 private:
  net::EventLoop& loop_;
  const RowServer server_;
  const std::unique_ptr<net::OutboundClient> client_;
  std::map<AttemptId, net::OutboundId> calls_;
};

// Translates the result of a call into that of a row. Pure.
RowResult result_of(Result<net::OutboundReply> reply);

}  // namespace pdjob::batch
