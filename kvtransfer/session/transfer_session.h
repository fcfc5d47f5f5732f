// The two halves of one transfer as pure cores. They decide what to do when; transports move the
// bytes. A session lives on one link incarnation and ignores events from any other (an old epoch, a
// stranger). Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/link_id.h"
#include "kvtransfer/rows/row_cursor.h"
#include "kvtransfer/session/pair_stats.h"

namespace pdjob::kvtransfer {

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
// These lead from every state to kFailed: Withdrawn, PushFailed, PeerCancelled, a deadline, a
// broken promise, and, once granted, LinkLost.
class SendSession {
 public:
  enum class State {
    kOffered,    // No receiver has asked for the rows yet.
    kAwaited,    // A receiver will ask for them once it has rows for them.
    kGranted,    // A receiver waits; there is nothing to push at the moment.
    kPushing,    // One range is on its way.
    kCommitted,  // All rows and COMMIT are sent; the receiver verifies.
    kDone,
    kFailed,
  };
  struct Options {
    uint64_t row_bytes = 0;      // Over all windows.
    uint32_t rows_max = 0;       // Rows of the source.
    uint32_t rows_per_push = 0;  // At least 1.
    Instant deadline;            // Lease of the offer.
    // Counted from the wait, the grant and each renewal; the last one from COMMIT.
    Duration lease{};
    Duration stall_max{};  // A range that takes longer counts as stalled.
    Duration start_max{};  // Longest wait until the link is ready for a range.
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
  struct PeerWaits {  // The latest one applies.
    LinkId link;
    Duration at_most{};  // Upper bound; renewals do not extend it.
  };
  struct Granted {
    LinkId link;
    uint32_t rows = 0;
    uint32_t rows_per_push_max = UINT32_MAX;
  };
  struct RangeWaits {};    // The link has its turn, but is not ready to move the range.
  struct RangeStarted {};  // The link has begun to move the range.
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
  using Event = std::variant<RowsReady, CommitRequested, Withdrawn, PeerWaits, Granted, RangeWaits,
                             RangeStarted, RangePushed, PushFailed, PeerCommitted, PeerCancelled,
                             PeerRenewed, LinkLost, TimePassed>;

  // Effects
  struct Push {  // RangePushed or PushFailed answers it; at most one is under way.
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
  // Link of the receiver that waits or has granted its rows; empty in kOffered.
  LinkId link() const { return link_; }
  Instant next_wakeup() const { return std::min(deadline_, push_deadline_); }

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
  // Fails, and tells the receiver if there is one.
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
// If our own GPU may write a little longer, the session is in kReleasing until WritesEnded, and
// then in kFailed.
//
// The arrows down and to the left are CancelRequested, PeerStopped, LinkLost, a deadline and broken
// promises.
class ReceiveSession {
 public:
  enum class State {
    kRequested,  // The link is not open yet.
    kGranted,    // The sender knows the target and may write it.
    kReceiving,  // The first rows are announced.
    // COMMIT has come; the digest of the last rows is still missing. The sender has stopped
    // writing.
    kVerifying,
    kDone,
    kCancelling,  // Failed and reported, but the sender may still write the target.
    kReleasing,   // Failed and reported, but our own GPU may still write the target.
    kFailed,
  };
  struct Options {
    LinkId link;
    uint32_t rows = 0;         // Granted.
    uint64_t row_bytes = 0;    // Over all windows.
    bool peer_writes = false;  // The sender writes the target itself (shm, cuda_ipc).
    bool writes_late = false;  // Our own GPU writes it, and does not stop at once (nccl).
    Instant deadline;
    // Longest time for announced rows to arrive, and for the sender to answer a CANCEL.
    Duration stall_max{};
  };

  // Events
  struct LinkReady {
    LinkId link;
  };
  struct RowsAnnounced {
    LinkId link;
    RowRange range;
  };
  struct RowsArrived {  // Rows [0, rows) are in place; `digest` covers all of them.
    uint32_t rows = 0;
    uint64_t digest = 0;
  };
  struct CommitReceived {
    LinkId link;
    uint32_t rows = 0;
    uint64_t bytes = 0;
    uint64_t digest = 0;
  };
  struct PeerStopped {  // CANCELLED or ABORT: the sender has stopped writing.
    LinkId link;
    Error reason;
  };
  struct CancelRequested {
    Error reason;
  };
  struct WritesEnded {};  // Comes in kReleasing only.
  struct LinkLost {
    LinkId link;
    LinkLoss loss = LinkLoss::kClosed;
    Error reason;
  };
  using Event = std::variant<LinkReady, RowsAnnounced, RowsArrived, CommitReceived, PeerStopped,
                             CancelRequested, WritesEnded, LinkLost, TimePassed>;

  // Effects
  struct SendGrant {};
  struct SendCommitted {};
  struct SendCancel {
    Error reason;
  };
  // Either the sender broke its promises, so only the end of the link proves that it stopped. Or
  // the rows are damaged, and a new link may do better.
  struct FailLink {
    Error reason;
  };
  struct ReportDone {
    uint32_t rows = 0;
    uint64_t bytes = 0;
    uint64_t digest = 0;
  };
  struct ReportFailed {  // In kReleasing, WritesEnded must follow.
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
  Instant next_wakeup() const {
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
  // Fails while the link lives, and tells the sender.
  void stop(Error reason, FailureCause cause, Instant now, Effects& effects);
  // Fails when the peer can no longer write the target.
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
