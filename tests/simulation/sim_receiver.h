// The fetching half of a simulated KV endpoint: kvtransfer/session/receiver.h on virtual time,
// around the real ReceiveSession.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kvtransfer/session/transfer_session.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/toy_engine.h"

namespace pdjob::simulation {

class SimReceiver {
 public:
  SimReceiver(SimWorld& world, SimWorker& worker) : world_(world), worker_(worker) {}

  // Calls of the worker.
  void fetch(TransferId id, Incarnation peer, SequenceId target, uint32_t rows, Instant deadline);
  // Asks the sender to keep a transfer that will be fetched.
  void await(TransferId id, Incarnation peer, Instant until);
  void cancel(TransferId id);

  // Messages from links.
  void on_ready(LinkId link);
  void on_rows(LinkId link, TransferId id, kvtransfer::RowRange range,
               const std::vector<Row>& rows);
  void on_commit(LinkId link, TransferId id, uint32_t rows, uint64_t digest, uint64_t tail);
  void on_cancelled(LinkId link, TransferId id);
  void on_abort(LinkId link, TransferId id, const Error& reason);
  void on_renewed(LinkId link);
  void on_closed(LinkId link);
  // This end's link breaks.
  void fail(LinkId link, const Error& reason);

  bool idle() const { return fetches_.empty() && waits_.empty(); }

 private:
  using ReceiveSession = kvtransfer::ReceiveSession;
  struct Peer {
    Incarnation sender;
    bool ready = false;
    bool given_up = false;
    Instant silent_since = kNever;
  };
  struct Fetch {
    TransferId id;
    SequenceId target;
    uint32_t rows = 0;
    ReceiveSession session;
    uint64_t tail = 0;
    Instant timer_due = kNever;
  };

  struct Awaited {
    Incarnation peer;
    Instant until;
    LinkId link;
  };

  LinkId link_to(Incarnation peer);
  void say_wait(TransferId id, const Awaited& wait);
  void lose_waits(LinkId link);
  void renew(LinkId link);
  void arm(Fetch& fetch);
  void step(TransferId id, const ReceiveSession::Event& event);
  void step_all_of(LinkId link, const ReceiveSession::Event& event);
  void apply(Fetch& fetch, const ReceiveSession::SendGrant& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCommitted& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCancel& effect);
  void apply(Fetch& fetch, const ReceiveSession::FailLink& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportDone& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportReleased& effect);

  SimWorld& world_;
  SimWorker& worker_;
  std::map<LinkId, Peer> peers_;
  std::map<TransferId, Fetch> fetches_;
  std::map<TransferId, Awaited> waits_;
  std::map<Incarnation, uint32_t> digest_errors_;
  SimChannel hashing_;
};

}  // namespace pdjob::simulation
