// kvtransfer/session/receiver.h on virtual time, around the real ReceiveSession. It also simulates
// the memory of the fetches, which is reused for later ones.
#pragma once

#include <map>
#include <optional>

#include "tests/simulation/kv_world.h"

namespace pdjob::simulation {

class KvReceiver final : public KvProcess {
 public:
  using KvProcess::KvProcess;

  // Calls of the worker. fetch() returns false if all rows are in use, or the transfer is being
  // fetched.
  bool fetch(TransferId id, KvSender& peer, uint32_t rows, Instant deadline);
  // Asks the sender to keep a transfer that will be fetched.
  void await(TransferId id, KvSender& peer, Instant until);
  void cancel(TransferId id);

  // Messages from links.
  void on_ready(LinkId link);
  void on_rows(LinkId link, TransferId id, RowRange range);
  void on_payload(LinkId link, TransferId id, RowRange range, const std::vector<uint64_t>& rows);
  void on_commit(LinkId link, TransferId id, uint32_t rows, uint64_t digest);
  void on_cancelled(LinkId link, TransferId id);
  void on_abort(LinkId link, TransferId id, const Error& why);
  void on_renewed(LinkId link);
  void on_closed(LinkId link);
  void fail(LinkId link, const Error& why);

  // Called by the sender itself, or on its behalf. The rows must still belong to that fetch.
  void write(size_t slot, uint64_t fetch, uint32_t row, uint64_t value);

  std::vector<LinkId> links() const;
  bool idle() const;

 private:
  static constexpr size_t kSlots = 4;
  struct Slot {
    std::vector<uint64_t> rows = std::vector<uint64_t>(kv::kRowsMax);
    uint64_t fetch = 0;  // 0 if the slot is free.
  };
  struct Peer {
    KvSender* sender = nullptr;
    bool ready = false;
    bool given_up = false;
    Instant silent_since = kNever;
  };
  struct Fetch {
    TransferId id;
    uint64_t number = 0;
    size_t slot = 0;
    uint32_t rows = 0;
    ReceiveSession session;
    uint64_t digest = 0;
    std::deque<RowRange> announced = {};  // Yet to be hashed.
    bool reported = false;
    Instant timer_due = kNever;
  };

  struct Awaited {
    KvSender* peer = nullptr;
    Instant until;
    LinkId link;
  };

  LinkId link_to(KvSender& peer);
  void say_wait(TransferId id, const Awaited& wait);
  void lose_waits(LinkId link);
  void renew(LinkId link);
  void hash_next(LinkId link, TransferId id, uint64_t number);
  void step_if(const Fetch* fetch, const ReceiveSession::Event& event);
  void step(TransferId id, ReceiveSession::Event event);
  void step_all_of(LinkId link, const ReceiveSession::Event& event);
  void arm(Fetch& fetch);
  Fetch* find(TransferId id, LinkId link);
  void apply(Fetch& fetch, const ReceiveSession::SendGrant& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCommitted& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCancel& effect);
  void apply(Fetch& fetch, const ReceiveSession::FailLink& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportDone& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportReleased& effect);
  void report(Fetch& fetch, const std::string& what);
  void give_on(const Fetch& fetch);

  uint64_t fetches_made_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::map<LinkId, Peer> peers_;
  std::map<TransferId, Fetch> fetches_;
  std::map<TransferId, Awaited> waits_;
};

}  // namespace pdjob::simulation
