// The two halves of one transfer as pure cores: what to do when, never how bytes move. A session
// lives on one link incarnation; whatever comes from another one (an old epoch, a stranger) is
// ignored. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/pair_stats.h"
#include "kvtransfer/row_cursor.h"

namespace pdjob::kvtransfer {

// One incarnation of a link inside this process: never reused, so it stands for (peer, epoch).
using LinkId = StrongId<struct LinkTag, uint64_t>;

enum class LinkLoss {
  kClosed,   // Nothing the peer does reaches our memory any more: its socket is closed, or it could
             // write only through ours.
  kGivenUp,  // We stopped listening, but the peer may still write memory it has mapped. kClosed
             // follows.
};

// The sender's half.
//
//              PeerWaits
//   kOffered -------------> kAwaited
//     |  ^------LinkLost------'  |
//     |                          |
//     +--------> Granted <-------+
//                   |
//                   v      RowsReady             all pushed, CommitRequested
//                kGranted ----------> kPushing -----------------------------> kCommitted
//                   ^                    |                                      |
//                   +--------------------+ RangePushed, none left               |
//                                                                 PeerCommitted |
//                                                             kDone <-----------+
//
// From every state to kFailed: Withdrawn, PushFailed, PeerCancelled, a deadline, a broken promise,
// and, once granted, LinkLost.
class SendSession {
 public:
  enum class State {
    kOffered,    // Nobody has asked for the rows yet.
    kAwaited,    // A receiver will ask for them once it has rows of its own to put them into.
    kGranted,    // A receiver waits; nothing to push at the moment.
    kPushing,    // One range is on its way.
    kCommitted,  // All rows and COMMIT are sent; the receiver verifies.
    kDone,
    kFailed,
  };
  struct Options {
    uint64_t row_bytes = 0;      // Over all windows.
    uint32_t rows_max = 0;       // Of the source.
    uint32_t rows_per_push = 0;  // At least 1.
    Instant deadline;            // Of the offer.
    Duration lease{};            // From the wait, the grant and each renewal on; the last one from
                                 // COMMIT on.
    Duration stall_max{};        // A range that takes longer has stopped.
    Duration start_max{};        // A link that is not ready for one for longer will not be.
  };

  // Events
  struct RowsReady {
    uint32_t rows = 0;
  };
  struct CommitRequested {
    uint32_t rows = 0;
  };
  struct Withdrawn {
    Error reason;
  };
  struct PeerWaits {  // The latest one counts.
    LinkId link;
    Duration at_most{};  // However often it renews.
  };
  struct Granted {
    LinkId link;
    uint32_t rows = 0;
    uint32_t rows_per_push_max = UINT32_MAX;
  };
  struct RangeWaits {};    // It is the link's turn to move it, and it is not ready to.
  struct RangeStarted {};  // It was, and is.
  struct RangePushed {};
  struct PushFailed {
    Error reason;
  };
  struct PeerCommitted {
    LinkId link;
  };
  struct PeerCancelled {
    LinkId link;
    Error reason;
  };
  struct PeerRenewed {
    LinkId link;
  };
  struct LinkLost {
    LinkId link;
    Error reason;
  };
  struct TimePassed {};
  using Event = std::variant<RowsReady, CommitRequested, Withdrawn, PeerWaits, Granted, RangeWaits,
                             RangeStarted, RangePushed, PushFailed, PeerCommitted, PeerCancelled,
                             PeerRenewed, LinkLost, TimePassed>;

  // Effects
  struct Push {  // Answered by RangePushed or PushFailed; at most one is under way.
    RowRange range;
  };
  struct SendCommit {
    uint32_t rows = 0;
    uint64_t bytes = 0;
  };
  struct SendAbort {  // Stop pushing, then tell the receiver.
    Error reason;
  };
  struct SendCancelled {  // Stop pushing, then tell the receiver.
  };
  struct ReportDone {
    uint64_t bytes = 0;
  };
  struct ReportFailed {
    Error reason;
    FailureCause cause = FailureCause::kLocal;
  };
  using Effect = std::variant<Push, SendCommit, SendAbort, SendCancelled, ReportDone, ReportFailed>;

  explicit SendSession(Options options) : options_(options), deadline_(options.deadline) {}

  void step(const Event& event, Instant now, std::vector<Effect>& effects);

  State state() const { return state_; }
  bool ended() const { return state_ == State::kDone || state_ == State::kFailed; }
  bool is_granted() const { return state_ != State::kOffered && state_ != State::kAwaited; }
  // Of the receiver that waits or has granted its rows; of none in kOffered.
  LinkId link() const { return link_; }
  Instant deadline() const { return std::min(deadline_, push_deadline_); }

 private:
  using Effects = std::vector<Effect>;
  void on(const RowsReady& event, Instant now, Effects& effects);
  void on(const CommitRequested& event, Instant now, Effects& effects);
  void on(const Withdrawn& event, Instant now, Effects& effects);
  void on(const PeerWaits& event, Instant now, Effects& effects);
  void on(const Granted& event, Instant now, Effects& effects);
  void on(const RangeWaits& event, Instant now, Effects& effects);
  void on(const RangeStarted& event, Instant now, Effects& effects);
  void on(const RangePushed& event, Instant now, Effects& effects);
  void on(const PushFailed& event, Instant now, Effects& effects);
  void on(const PeerCommitted& event, Instant now, Effects& effects);
  void on(const PeerCancelled& event, Instant now, Effects& effects);
  void on(const PeerRenewed& event, Instant now, Effects& effects);
  void on(const LinkLost& event, Instant now, Effects& effects);
  void on(const TimePassed& event, Instant now, Effects& effects);

  bool is_ours(LinkId link) const { return state_ != State::kOffered && link == link_; }
  void renew(Instant now);
  void go_on(Instant now, Effects& effects);
  // Fails, telling the receiver if there is one.
  void abort(Error reason, FailureCause cause, Effects& effects);
  void fail(Error reason, FailureCause cause, Effects& effects);

  Options options_;
  State state_ = State::kOffered;
  LinkId link_;
  Instant deadline_;
  Instant push_deadline_ = kNever;
  Instant wait_deadline_ = kNever;  // In kAwaited.
  uint32_t rows_granted_ = 0;
  uint32_t rows_ready_ = 0;
  uint32_t rows_pushed_ = 0;
  uint32_t rows_in_flight_ = 0;
  bool commit_requested_ = false;
};

// The receiver's half.
//
//              LinkReady          RowsAnnounced            CommitReceived
//   kRequested ---------> kGranted ----------> kReceiving ---------------> kVerifying ---> kDone
//       |                    |                     |                           |    RowsArrived,
//       |                    +---------+-----------+                           |    all equal
//       |                              |                                       |
//       |         the sender may write | else                                  | not equal
//       |              +---------------+---------------+                       |
//       |              v                               v                       |
//       |         kCancelling ---------------------> kFailed <-----------------+
//       |              PeerStopped, LinkLost (kClosed) ^
//       +----------------------------------------------+
//
// Where our own GPU may write a little longer, kReleasing stands before kFailed, until
// WritesEnded.
//
// Down and left go CancelRequested, PeerStopped, LinkLost, a deadline and broken promises.
class ReceiveSession {
 public:
  enum class State {
    kRequested,  // The link is not open yet.
    kGranted,    // The sender knows the target and may write it.
    kReceiving,  // First rows are announced.
    kVerifying,  // COMMIT is here; the digest of the last rows is not. The sender has stopped
                 // writing.
    kDone,
    kCancelling,  // Failed and reported, but the sender may still write the target.
    kReleasing,   // Failed and reported, but our own GPU may still write it.
    kFailed,
  };
  struct Options {
    LinkId link;
    uint32_t rows = 0;         // Granted.
    uint64_t row_bytes = 0;    // Over all windows.
    bool peer_writes = false;  // The sender writes the target itself (shm).
    bool writes_late = false;  // We do, and a GPU of ours does not stop at once (nccl).
    Instant deadline;
    Duration stall_max{};  // Announced rows that take longer to arrive have stopped, and so has a
                           // sender that takes longer to answer a CANCEL.
  };

  // Events
  struct LinkReady {
    LinkId link;
  };
  struct RowsAnnounced {
    LinkId link;
    RowRange range;
  };
  struct RowsArrived {  // Rows [0, rows) are in place, and this is the digest of them all.
    uint32_t rows = 0;
    uint64_t digest = 0;
  };
  struct CommitReceived {
    LinkId link;
    uint32_t rows = 0;
    uint64_t bytes = 0;
    uint64_t digest = 0;
  };
  struct PeerStopped {  // CANCELLED or ABORT: the sender does not write any more.
    LinkId link;
    Error reason;
  };
  struct CancelRequested {
    Error reason;
  };
  struct WritesEnded {};  // In kReleasing.
  struct LinkLost {
    LinkId link;
    LinkLoss loss = LinkLoss::kClosed;
    Error reason;
  };
  struct TimePassed {};
  using Event = std::variant<LinkReady, RowsAnnounced, RowsArrived, CommitReceived, PeerStopped,
                             CancelRequested, WritesEnded, LinkLost, TimePassed>;

  // Effects
  struct SendGrant {};
  struct SendCommitted {};
  struct SendCancel {
    Error reason;
  };
  struct FailLink {  // The sender breaks its promises, and only the end of the link tells that it
                     // stops; or what moved is damaged, and a new link may do better.
    Error reason;
  };
  struct ReportDone {
    uint32_t rows = 0;
    uint64_t bytes = 0;
  };
  struct ReportFailed {  // In kReleasing: to be answered by WritesEnded.
    Error reason;
    FailureCause cause = FailureCause::kLocal;
    bool region_safe = true;
  };
  struct ReportReleased {};
  using Effect = std::variant<SendGrant, SendCommitted, SendCancel, FailLink, ReportDone,
                              ReportFailed, ReportReleased>;

  explicit ReceiveSession(Options options) : options_(options) {}

  void step(const Event& event, Instant now, std::vector<Effect>& effects);

  State state() const { return state_; }
  bool ended() const { return state_ == State::kDone || state_ == State::kFailed; }
  LinkId link() const { return options_.link; }
  Instant deadline() const {
    const bool reported = state_ == State::kCancelling || state_ == State::kReleasing;
    return reported ? stall_deadline_ : std::min(options_.deadline, stall_deadline_);
  }

 private:
  using Effects = std::vector<Effect>;
  void on(const LinkReady& event, Instant now, Effects& effects);
  void on(const RowsAnnounced& event, Instant now, Effects& effects);
  void on(const RowsArrived& event, Instant now, Effects& effects);
  void on(const CommitReceived& event, Instant now, Effects& effects);
  void on(const PeerStopped& event, Instant now, Effects& effects);
  void on(const CancelRequested& event, Instant now, Effects& effects);
  void on(const WritesEnded& event, Instant now, Effects& effects);
  void on(const LinkLost& event, Instant now, Effects& effects);
  void on(const TimePassed& event, Instant now, Effects& effects);

  bool is_receiving() const { return state_ == State::kGranted || state_ == State::kReceiving; }
  void verify(Instant now, Effects& effects);
  // Fails while the link lives: the sender is told.
  void stop(Error reason, FailureCause cause, Instant now, Effects& effects);
  // Fails when no peer can write the target any more.
  void fail(Error reason, FailureCause cause, Effects& effects);

  Options options_;
  State state_ = State::kRequested;
  Instant stall_deadline_ = kNever;  // While the sender owes announced rows, or CANCELLED.
  uint32_t rows_announced_ = 0;
  uint32_t rows_arrived_ = 0;
  uint64_t digest_arrived_ = 0;
  CommitReceived commit_;
};

}  // namespace pdjob::kvtransfer
