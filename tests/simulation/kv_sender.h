// kvtransfer/session/sender.h on virtual time, around the real SendSession. Rows move one by one,
// so that anything can happen between two of them.
#pragma once

#include <map>

#include "tests/simulation/kv_world.h"

namespace pdjob::simulation {

// A receiver's rows, as the sender knows them.
struct KvGrant {
  KvReceiver* receiver = nullptr;
  size_t slot = 0;
  uint64_t fetch = 0;  // The receiver's fetch that these rows are for; only it accepts writes.
  uint32_t rows = 0;
};

class KvSender final : public KvProcess {
 public:
  using KvProcess::KvProcess;

  // Calls of the worker.
  void offer(TransferId id);
  void rows_ready(TransferId id, uint32_t rows) { step(id, SendSession::RowsReady{rows}); }
  void commit(TransferId id, uint32_t rows) { step(id, SendSession::CommitRequested{rows}); }
  void withdraw(TransferId id) {
    step(id, SendSession::Withdrawn{{ErrorCode::kCancelled, "withdrawn"}});
  }

  // Messages from links.
  void on_opened(LinkId link, KvReceiver& receiver);
  void on_grant(LinkId link, TransferId id, const KvGrant& grant);
  void on_committed(LinkId link, TransferId id) { step(id, SendSession::PeerCommitted{link}); }
  void on_wait(LinkId link, TransferId id, Duration at_most);
  void on_cancel(LinkId link, TransferId id);
  void on_renew(LinkId link);
  // Called when the peer has closed the link, or this end does.
  void close(LinkId link, const char* why);

  std::vector<LinkId> links() const;
  bool idle() const { return offers_.empty() && waiting_.empty() && early_waits_.empty(); }

 private:
  struct Offer {
    TransferId id;
    SendSession session;
    KvGrant grant = {};
    RowRange range = {};
    std::vector<uint64_t> moved = {};  // The range's rows so far.
    bool reported = false;
    Instant timer_due = kNever;
  };
  struct Waiting {
    LinkId link;
    KvGrant grant;
  };
  struct EarlyWait {
    LinkId link;
    Instant until;
  };
  using Effects = std::vector<SendSession::Effect>;

  void step(TransferId id, SendSession::Event event);
  void arm(Offer& offer);
  void apply(Offer& offer, const SendSession::Push& effect);
  void apply(Offer& offer, const SendSession::SendCommit& effect);
  void apply(Offer& offer, const SendSession::SendAbort& effect);
  void apply(Offer& offer, const SendSession::SendCancelled& effect);
  void apply(Offer& offer, const SendSession::ReportDone& effect);
  void apply(Offer& offer, const SendSession::ReportFailed& effect);
  void end(Offer& offer, const Error& how);
  void start_next(LinkId link);
  void move_row(LinkId link, TransferId id, uint64_t push);
  void announce(const Offer& offer);
  void send_payload(const Offer& offer);
  void stop_pushing(Offer& offer);
  void abort(LinkId link, TransferId id, const Error& why);

  uint64_t pushes_ = 0;
  std::map<LinkId, KvReceiver*> receivers_;  // The receiver of each open link.
  // The pushes of each open link, which take turns.
  std::map<LinkId, std::deque<TransferId>> works_;
  std::map<LinkId, uint64_t> push_under_way_;
  std::map<TransferId, Offer> offers_;
  std::map<TransferId, Waiting> waiting_;
  std::map<TransferId, EarlyWait> early_waits_;
  std::map<TransferId, Error> ended_;
};

}  // namespace pdjob::simulation
