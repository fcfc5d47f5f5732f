// NcclLink: one end of the NCCL half of a KV link, as a pure core: when its communicator of two
// ranks is made, which slab goes when, and what happens when something takes too long. NCCL itself
// waits for ever and reports little, so every state but rest has a deadline here.
//
//            Wanted, OfferCame        Joined           LeaveCame
//   kIdle --------------------> kInit ------> kReady ------------> kDraining --+
//     ^  |                        |              |                     |       | Left
//     |  |                        |              |                     |       |
//     +--|------------------------|--------------|---------------------|-------+
//        |                        v              v                     v
//        +-> kClosed <--- kAborting <------------+---------------------+
//            LinkLost  Left       Failed, LinkLost, a deadline, a broken promise
//
// Each way through kInit is an *epoch*, and whatever names an older one is ignored. After an abort
// the whole link ends, and its successor starts anew; after a graceful leave the same link can open
// the next epoch. Slabs of an epoch belong to the GPU until Left, and so do the rows that it packs
// them from or unpacks them to: those of a transfer are given back when none of its slabs is under
// way any more.
//
// The receiver makes the unique id and is rank 0. A slab moves when both ends are ready for it, so
// that no kernel waits on a GPU for a peer that is not there: SLAB announces it, POSTED answers
// that the receive is under way, and is the sender's credit. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link_message.h"

namespace pdjob::kvtransfer {

class NcclLink {
 public:
  enum class Side { kReceiver, kSender };
  enum class State { kIdle, kInit, kReady, kDraining, kAborting, kClosed };
  struct Options {
    Side side = Side::kReceiver;
    uint32_t slabs = 0;
    uint32_t slab_bytes = 0;
    Duration init_timeout{};   // For both ends to join.
    Duration slab_timeout{};   // For an announced slab to arrive.
    Duration abort_timeout{};  // For NCCL to let go; then only the end of the process helps.
  };

  // Events of this end
  struct Wanted {  // Receiver: transfers wait for rows, or none does any more.
    bool wanted = true;
  };
  struct Taken {  // Sender: the host fills a slab that was free.
    uint32_t slab = 0;
  };
  struct Dropped {  // Sender: and does not need it after all.
    uint32_t slab = 0;
  };
  struct Packed {  // Sender: the taken slab holds `bytes` of a transfer, or will when it is sent.
    uint32_t slab = 0;
    uint32_t bytes = 0;
    TransferId transfer;
  };
  struct Emptied {  // Receiver: what a filled slab held is where it belongs.
    uint32_t slab = 0;
  };
  struct Ended {  // Nothing more of this transfer is packed or wanted. To be answered by Release.
    TransferId transfer;
  };
  struct LeaveRequested {};  // The GPU has too many communicators, and this one is not in use.
  struct LinkLost {};
  struct TimePassed {};
  // Events of the GPU's thread
  struct IdMade {
    uint32_t epoch = 0;
    NcclLinkId id{};
  };
  struct Joined {
    uint32_t epoch = 0;
  };
  struct Moved {  // All of the slab is sent, or received and copied to where it is wanted.
    uint32_t epoch = 0;
    uint32_t slab = 0;
  };
  struct Failed {
    uint32_t epoch = 0;
    Error reason;
  };
  struct Left {  // The communicator is gone, and nothing touches its slabs or rows any more.
    uint32_t epoch = 0;
  };
  // Events of the peer: the messages themselves.
  using Event = std::variant<Wanted, Taken, Dropped, Packed, Emptied, Ended, LeaveRequested,
                             LinkLost, TimePassed, IdMade, Joined, Moved, Failed, Left, NcclOffer,
                             NcclPosted, NcclSlab, NcclLeave>;

  // Effects
  struct MakeId {
    uint32_t epoch = 0;
  };
  struct Join {
    uint32_t epoch = 0;
    int rank = 0;
    NcclLinkId id{};
  };
  struct StartSend {
    uint32_t epoch = 0;
    uint32_t slab = 0;
    uint32_t bytes = 0;
  };
  struct StartReceive {
    uint32_t epoch = 0;
    uint32_t slab = 0;
    uint32_t bytes = 0;
    TransferId transfer;
  };
  struct Leave {  // Finalize and destroy.
    uint32_t epoch = 0;
  };
  struct Abort {
    uint32_t epoch = 0;
  };
  struct Send {
    LinkMessage message;
  };
  struct TellFree {};  // Sender: there may be a free slab.
  struct TellFilled {  // Receiver: to be answered by Emptied.
    uint32_t slab = 0;
    uint32_t bytes = 0;
    TransferId transfer;
  };
  struct Release {  // The GPU does not touch the rows of this transfer any more.
    TransferId transfer;
  };
  struct FailLink {
    Error reason;
  };
  struct ReportStuck {};  // NCCL did not return from an abort, or the GPU did not come to rest.
  using Effect = std::variant<MakeId, Join, StartSend, StartReceive, Leave, Abort, Send, TellFree,
                              TellFilled, Release, FailLink, ReportStuck>;

  explicit NcclLink(const Options& options) : options_(options), slabs_(options.slabs) {}

  void step(const Event& event, Instant now, std::vector<Effect>& effects);

  State state() const { return state_; }
  uint32_t epoch() const { return epoch_; }
  // A communicator exists, or is on its way.
  bool open() const { return state_ != State::kIdle && state_ != State::kClosed; }
  // And nobody has asked it to go.
  bool stays() const { return (state_ == State::kInit || state_ == State::kReady) && !leaving_; }
  // Nothing is under way.
  bool at_rest() const;
  // Sender: a slab that may be filled.
  std::optional<uint32_t> free_slab() const;
  // When TimePassed must come, at the latest.
  Instant deadline() const;

 private:
  using Effects = std::vector<Effect>;
  enum class Use {
    kFree,
    kTaken,      // Being packed.
    kAnnounced,  // Packed, or to be; the receiver is not ready for it.
    kMoving,
    kFilled,  // Received, not yet emptied.
  };
  struct Slab {
    Use use = Use::kFree;
    uint32_t bytes = 0;
    uint64_t number = 0;
    TransferId transfer;
    Instant deadline = kNever;
  };

  void on(const Wanted& event, Instant now, Effects& effects);
  void on(const Taken& event, Instant now, Effects& effects);
  void on(const Dropped& event, Instant now, Effects& effects);
  void on(const Packed& event, Instant now, Effects& effects);
  void on(const Emptied& event, Instant now, Effects& effects);
  void on(const Ended& event, Instant now, Effects& effects);
  void on(const LeaveRequested& event, Instant now, Effects& effects);
  void on(const LinkLost& event, Instant now, Effects& effects);
  void on(const TimePassed& event, Instant now, Effects& effects);
  void on(const IdMade& event, Instant now, Effects& effects);
  void on(const Joined& event, Instant now, Effects& effects);
  void on(const Moved& event, Instant now, Effects& effects);
  void on(const Failed& event, Instant now, Effects& effects);
  void on(const Left& event, Instant now, Effects& effects);
  void on(const NcclOffer& event, Instant now, Effects& effects);
  void on(const NcclPosted& event, Instant now, Effects& effects);
  void on(const NcclSlab& event, Instant now, Effects& effects);
  void on(const NcclLeave& event, Instant now, Effects& effects);

  bool is_receiver() const { return options_.side == Side::kReceiver; }
  bool is_current(uint32_t epoch) const { return epoch == epoch_ && epoch_ > 0; }
  void join(const NcclOffer& offer, Instant now, Effects& effects);
  void receive_waiting(Instant now, Effects& effects);
  bool is_under_way(TransferId transfer) const;
  void release_ended(Effects& effects);
  void leave_if_done(Instant now, Effects& effects);
  void open_if_wanted(Instant now, Effects& effects);
  void drain(Instant now, Effects& effects);
  void abort(Instant now, Effects& effects);
  void fail(Error reason, Instant now, Effects& effects);
  void free(Slab& slab);

  Options options_;
  State state_ = State::kIdle;
  uint32_t epoch_ = 0;
  Instant deadline_ = kNever;  // Of the state.
  bool wanted_ = false;
  bool leaving_ = false;                 // No new slabs in this epoch, once the sender has said so.
  bool peer_left_ = false;               // Receiver: and it has.
  std::optional<NcclOffer> next_offer_;  // Sender: came while it drains.
  std::vector<Slab> slabs_;
  uint64_t slabs_announced_ = 0;  // Both: numbers of the epoch's slabs.
  uint64_t slabs_posted_ = 0;
  std::deque<NcclSlab> waiting_;   // Receiver: announced, and no slab was free, or not yet joined.
  std::vector<TransferId> ended_;  // And not released.
};

const char* name_of(NcclLink::State state);

}  // namespace pdjob::kvtransfer
