// NcclLink: one end of the NCCL half of a KV link, as a pure core. It decides when its communicator
// of two ranks is made, which slab goes when, and what happens on a timeout. NCCL itself waits for
// ever and reports little, so every state except rest has a deadline here.
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
// Each way through kInit is an *epoch*. Events and messages of an older epoch are ignored. After an
// abort the whole link ends, and a new link replaces it. After a graceful leave the same link can
// open the next epoch. The slabs of an epoch belong to the GPU until Left. So do the rows that the
// GPU packs or unpacks: a transfer's rows are given back when none of its slabs is under way.
//
// The receiver makes the unique id and is rank 0. A slab moves when both ends are ready for it, so
// no kernel on a GPU waits for a missing peer. SLAB announces the slab. POSTED answers that the
// receive is under way, and is the sender's credit. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::kvtransfer {

class NcclLink {
 public:
  enum class Side { kReceiver, kSender };
  enum class State { kIdle, kInit, kReady, kDraining, kAborting, kClosed };
  struct Options {
    Side side = Side::kReceiver;
    uint32_t slabs = 0;
    uint32_t slab_bytes = 0;
    Duration init_timeout{};   // For both ends to join the communicator.
    Duration slab_timeout{};   // For an announced slab to arrive.
    Duration abort_timeout{};  // For NCCL to let go. Beyond that, only ending the process helps.
  };

  // Events of this end
  struct Wanted {  // Receiver: whether transfers wait for rows.
    bool wanted = true;
  };
  struct Taken {  // Sender: the host begins to fill a free slab.
    uint32_t slab = 0;
  };
  struct Dropped {  // Sender: the host does not need the taken slab.
    uint32_t slab = 0;
  };
  // Sender: the taken slab holds `bytes` of a transfer, or will hold them when it is sent.
  struct Packed {
    uint32_t slab = 0;
    uint32_t bytes = 0;
    TransferId transfer;
  };
  struct Emptied {  // Receiver: the bytes of a filled slab are in their rows.
    uint32_t slab = 0;
  };
  struct Ended {  // This end packs or wants no more of this transfer. Release answers it.
    TransferId transfer;
  };
  struct LeaveRequested {};  // The GPU has too many communicators, and this one is idle.
  struct LinkLost {};
  // Events of the GPU's thread
  struct IdMade {
    uint32_t epoch = 0;
    NcclLinkId id{};
  };
  struct Joined {
    uint32_t epoch = 0;
  };
  struct Moved {  // The slab is sent, or received and copied to its target.
    uint32_t epoch = 0;
    uint32_t slab = 0;
  };
  struct Failed {
    uint32_t epoch = 0;
    Error reason;
  };
  struct Left {  // The communicator is gone, and its slabs and rows are free.
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
  struct TellFilled {  // Receiver: Emptied must answer it.
    uint32_t slab = 0;
    uint32_t bytes = 0;
    TransferId transfer;
  };
  struct Release {  // The GPU no longer touches the rows of this transfer.
    TransferId transfer;
  };
  struct FailLink {
    Error reason;
  };
  struct ReportStuck {};  // NCCL did not return from an abort, or the GPU did not become idle.
  using Effect = std::variant<MakeId, Join, StartSend, StartReceive, Leave, Abort, Send, TellFree,
                              TellFilled, Release, FailLink, ReportStuck>;

  explicit NcclLink(const Options& options) : options_(options), slabs_(options.slabs) {}

  void step(const Event& event, Instant now, std::vector<Effect>& effects);

  State state() const { return state_; }
  uint32_t epoch() const { return epoch_; }
  // A communicator exists or is being made.
  bool open() const { return state_ != State::kIdle && state_ != State::kClosed; }
  // A communicator exists or is being made, and neither end has asked it to leave.
  bool stays() const { return (state_ == State::kInit || state_ == State::kReady) && !leaving_; }
  // All slabs are free, and no announced slab waits.
  bool at_rest() const;
  // Sender: a slab that may be filled, if any.
  std::optional<uint32_t> free_slab() const;
  // The latest time at which TimePassed must come.
  Instant next_wakeup() const;

 private:
  using Effects = std::vector<Effect>;
  enum class Use {
    kFree,
    kTaken,      // The host packs it.
    kAnnounced,  // Packed or to be packed; the receiver is not ready for it yet.
    kMoving,
    kFilled,  // Received, but not emptied yet.
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
  Instant deadline_ = kNever;  // Deadline of the state.
  bool wanted_ = false;
  bool looks_again_ = false;  // kAborting: its deadline has passed once.
  // The communicator is to close. Sender: it fills no more slabs in this epoch.
  bool leaving_ = false;
  bool peer_left_ = false;               // Receiver: the sender has sent its last slab.
  std::optional<NcclOffer> next_offer_;  // Sender: the offer that came while it drains.
  std::vector<Slab> slabs_;
  uint64_t slabs_announced_ = 0;  // Slabs of this epoch so far; the next slab's number.
  uint64_t slabs_posted_ = 0;
  std::deque<NcclSlab> waiting_;  // Receiver: announced while no slab was free, or before the join.
  std::vector<TransferId> ended_;  // Ended transfers whose rows are not released yet.
};

}  // namespace pdjob::kvtransfer
