// The offering half of a simulated KV endpoint: kvtransfer/session/sender.h on virtual time, around
// the real SendSession. It simulates the moving of rows, which takes time, and may fail or damage
// them.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "kvtransfer/session/transfer_session.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/toy_engine.h"

namespace pdjob::simulation {

class SimSender {
 public:
  SimSender(SimWorld& world, SimWorker& worker) : world_(world), worker_(worker) {}

  // Calls of the worker.
  void offer(TransferId id, SequenceId source, Instant deadline);
  void rows_ready(TransferId id, uint32_t ready);
  void commit(TransferId id, uint32_t rows, uint64_t tail);
  void withdraw(TransferId id, const Error& reason);

  // Messages from links.
  void on_opened(LinkId link);
  void on_grant(LinkId link, TransferId id, SequenceId target, uint32_t rows);
  void on_wait(LinkId link, TransferId id, Duration at_most);
  void on_cancel(LinkId link, TransferId id, const Error& reason);
  void on_committed(LinkId link, TransferId id);
  void on_renew(LinkId link);
  void on_closed(LinkId link);

  bool idle() const { return offers_.empty() && waiting_.empty() && early_waits_.empty(); }

 private:
  using SendSession = kvtransfer::SendSession;
  struct Offer {
    TransferId id;
    SequenceId source;
    SendSession session;
    SequenceId target;
    uint64_t push = 0;  // The number of the push under way.
    kvtransfer::RowRange range;
    uint64_t tail = 0;
    Instant timer_due = kNever;
  };
  struct Grant {
    LinkId link;
    SequenceId target;
    uint32_t rows = 0;
  };

  struct EarlyWait {
    LinkId link;
    Instant until;
  };

  void step(TransferId id, const SendSession::Event& event);
  void apply(Offer& offer, const SendSession::Push& effect);
  void apply(Offer& offer, const SendSession::SendCommit& effect);
  void apply(Offer& offer, const SendSession::SendAbort& effect);
  void apply(Offer& offer, const SendSession::SendCancelled& effect);
  void apply(Offer& offer, const SendSession::ReportDone& effect);
  void apply(Offer& offer, const SendSession::ReportFailed& effect);
  void finish_push(TransferId id, uint64_t push);
  void arm(Offer& offer);
  void end(Offer& offer, Error why);
  void abort(LinkId link, TransferId id, const Error& reason);

  SimWorld& world_;
  SimWorker& worker_;
  std::set<LinkId> links_;
  std::map<TransferId, Offer> offers_;
  std::map<TransferId, Grant> waiting_;  // Grants that arrived before their offers.
  std::map<TransferId, EarlyWait> early_waits_;
  std::map<TransferId, Error> ended_;
  uint64_t pushes_ = 0;
};

}  // namespace pdjob::simulation
