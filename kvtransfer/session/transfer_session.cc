#include "kvtransfer/session/transfer_session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"

namespace pdjob::kvtransfer {

// --- SendSession

void SendSession::step(const Event& event, Instant now, Effects& effects) {
  if (!ended()) {
    std::visit([&](const auto& what) { on(what, now, effects); }, event);
  }
}

void SendSession::on(const RowsReady& event, Instant now, Effects& effects) {
  if (commit_requested_) {
    return;
  }
  if (event.rows > options_.rows_max) {
    return abort({ErrorCode::kInvalidArgument, "more rows are ready than the source has"},
                 FailureCause::kLocal, effects);
  }
  rows_ready_ = std::max(rows_ready_, event.rows);
  go_on(now, effects);
}

void SendSession::on(const CommitRequested& event, Instant now, Effects& effects) {
  if (commit_requested_) {
    return;
  }
  if (event.rows > options_.rows_max || event.rows < rows_ready_) {
    return abort({ErrorCode::kInvalidArgument, "the rows of a transfer were counted wrong"},
                 FailureCause::kLocal, effects);
  }
  rows_ready_ = event.rows;
  commit_requested_ = true;
  go_on(now, effects);
}

void SendSession::on(const Withdrawn& event, Instant /*now*/, Effects& effects) {
  abort(event.reason, FailureCause::kCancelled, effects);
}

void SendSession::on(const PeerWaits& event, Instant now, Effects& /*effects*/) {
  if (is_granted()) {
    return;
  }
  state_ = State::kAwaited;
  link_ = event.link;
  wait_deadline_ = now + event.at_most;
  renew(now);
}

void SendSession::on(const Granted& event, Instant now, Effects& effects) {
  if (is_granted()) {
    return;
  }
  state_ = State::kGranted;
  link_ = event.link;
  rows_granted_ = event.rows;
  options_.rows_per_push = std::min(options_.rows_per_push, event.rows_per_push_max);
  deadline_ = std::max(deadline_, now + options_.lease);
  go_on(now, effects);
}

void SendSession::on(const RangeWaits& /*event*/, Instant now, Effects& /*effects*/) {
  if (state_ == State::kPushing && push_deadline_ == kNever) {
    push_deadline_ = now + options_.start_max;
  }
}

void SendSession::on(const RangeStarted& /*event*/, Instant now, Effects& /*effects*/) {
  if (state_ == State::kPushing) {
    push_deadline_ = now + options_.stall_max;
  }
}

void SendSession::on(const RangePushed& /*event*/, Instant now, Effects& effects) {
  if (state_ != State::kPushing) {
    return;
  }
  state_ = State::kGranted;
  push_deadline_ = kNever;
  rows_pushed_ += std::exchange(rows_in_flight_, 0);
  go_on(now, effects);
}

void SendSession::on(const PushFailed& event, Instant /*now*/, Effects& effects) {
  abort(event.reason, FailureCause::kLocal, effects);
}

void SendSession::on(const PeerCommitted& event, Instant /*now*/, Effects& effects) {
  if (!is_ours(event.link)) {
    return;
  }
  if (state_ != State::kCommitted) {
    return abort({ErrorCode::kCorrupt, "the receiver confirmed a transfer that was not committed"},
                 FailureCause::kBrokenPromise, effects);
  }
  state_ = State::kDone;
  effects.push_back(ReportDone{rows_pushed_ * options_.row_bytes});
}

void SendSession::on(const PeerCancelled& event, Instant /*now*/, Effects& effects) {
  if (is_ours(event.link)) {  // Also while it waits: no other receiver comes for these rows.
    effects.push_back(SendCancelled{});
    fail(event.reason, FailureCause::kPeer, effects);
  }
}

void SendSession::on(const PeerRenewed& event, Instant now, Effects& /*effects*/) {
  // After COMMIT only the receiver's answer is missing. That wait must end.
  if (is_ours(event.link) && state_ != State::kCommitted) {
    renew(now);
  }
}

void SendSession::renew(Instant now) {
  const Instant until = state_ == State::kAwaited ? wait_deadline_ : kNever;
  deadline_ = std::max(deadline_, std::min(until, now + options_.lease));
}

void SendSession::on(const LinkLost& event, Instant now, Effects& effects) {
  if (!is_ours(event.link)) {
    return;
  }
  if (state_ != State::kAwaited) {
    return fail(event.reason, FailureCause::kLink, effects);
  }
  // A live receiver makes a new link at once and sends WAIT again.
  state_ = State::kOffered;
  link_ = {};
  deadline_ = std::max(options_.deadline, std::min(deadline_, now + options_.stall_max));
}

void SendSession::on(const TimePassed& /*event*/, Instant now, Effects& effects) {
  if (now >= push_deadline_) {
    abort({ErrorCode::kTimeout, "the KV rows stopped on their way to the receiver"},
          FailureCause::kStalled, effects);
  } else if (now >= deadline_) {
    abort({ErrorCode::kTimeout, is_granted() ? "the receiver's lease of the KV rows ended"
                                             : "nobody fetched the KV rows in time"},
          FailureCause::kTimeout, effects);
  }
}

void SendSession::go_on(Instant now, Effects& effects) {
  if (state_ != State::kGranted) {
    return;
  }
  if (rows_ready_ > rows_granted_) {
    return abort({ErrorCode::kInvalidArgument, "the receiver granted " +
                                                   std::to_string(rows_granted_) + " KV rows, " +
                                                   std::to_string(rows_ready_) + " are ready"},
                 FailureCause::kLocal, effects);
  }
  if (rows_pushed_ < rows_ready_) {
    rows_in_flight_ = std::min(rows_ready_ - rows_pushed_, options_.rows_per_push);
    state_ = State::kPushing;
    effects.push_back(Push{{.first = rows_pushed_, .count = rows_in_flight_}});
  } else if (commit_requested_) {
    state_ = State::kCommitted;
    deadline_ = std::max(deadline_, now + options_.lease);
    effects.push_back(SendCommit{.rows = rows_pushed_, .bytes = rows_pushed_ * options_.row_bytes});
  }
}

void SendSession::abort(Error reason, FailureCause cause, Effects& effects) {
  if (is_granted()) {
    effects.push_back(SendAbort{reason});
  }
  fail(std::move(reason), cause, effects);
}

void SendSession::fail(Error reason, FailureCause cause, Effects& effects) {
  state_ = State::kFailed;
  effects.push_back(ReportFailed{std::move(reason), cause});
}

// --- ReceiveSession

void ReceiveSession::step(const Event& event, Instant now, Effects& effects) {
  const bool waits_for_another =
      state_ == State::kReleasing && !std::holds_alternative<WritesEnded>(event);
  if (!ended() && !waits_for_another) {
    std::visit([&](const auto& what) { on(what, now, effects); }, event);
  }
}

void ReceiveSession::on(const LinkReady& event, Instant /*now*/, Effects& effects) {
  if (event.link == options_.link && state_ == State::kRequested) {
    state_ = State::kGranted;
    effects.push_back(SendGrant{});
  }
}

void ReceiveSession::on(const RowsAnnounced& event, Instant now, Effects& effects) {
  if (event.link != options_.link || state_ == State::kRequested || state_ == State::kCancelling) {
    return;
  }
  const RowRange range = event.range;
  const bool fits = range.first == rows_announced_ && range.count > 0 &&
                    range.count <= options_.rows - rows_announced_;
  if (!fits || state_ == State::kVerifying) {
    return stop({ErrorCode::kCorrupt,
                 "the sender announced KV rows " + std::to_string(range.first) + "+" +
                     std::to_string(range.count) + ", expected from " +
                     std::to_string(rows_announced_) + " up to " + std::to_string(options_.rows)},
                FailureCause::kBrokenPromise, now, effects);
  }
  state_ = State::kReceiving;
  if (rows_arrived_ == rows_announced_) {
    stall_deadline_ = now + options_.stall_max;
  }
  rows_announced_ += range.count;
}

void ReceiveSession::on(const RowsArrived& event, Instant now, Effects& effects) {
  if (state_ != State::kReceiving && state_ != State::kVerifying) {
    return;
  }
  PDJOB_CHECK(event.rows >= rows_arrived_ && event.rows <= rows_announced_, event.rows,
              rows_announced_);
  if (event.rows > rows_arrived_) {
    stall_deadline_ = event.rows == rows_announced_ ? kNever : now + options_.stall_max;
  }
  rows_arrived_ = event.rows;
  digest_arrived_ = event.digest;
  if (state_ == State::kVerifying) {
    verify(now, effects);
  }
}

void ReceiveSession::on(const CommitReceived& event, Instant now, Effects& effects) {
  if (event.link != options_.link || state_ == State::kRequested || state_ == State::kCancelling) {
    return;
  }
  if (state_ == State::kVerifying) {
    return stop({ErrorCode::kCorrupt, "the sender committed KV rows twice"},
                FailureCause::kBrokenPromise, now, effects);
  }
  state_ = State::kVerifying;
  commit_ = event;
  if (event.rows != rows_announced_ || event.bytes != rows_announced_ * options_.row_bytes) {
    return stop({ErrorCode::kCorrupt,
                 "the sender committed " + std::to_string(event.rows) + " KV rows (" +
                     std::to_string(event.bytes) + " bytes), " + std::to_string(rows_announced_) +
                     " (" + std::to_string(rows_announced_ * options_.row_bytes) + ") came"},
                FailureCause::kBrokenPromise, now, effects);
  }
  verify(now, effects);
}

void ReceiveSession::on(const PeerStopped& event, Instant /*now*/, Effects& effects) {
  if (event.link != options_.link || state_ == State::kRequested) {
    return;
  }
  if (state_ == State::kCancelling) {
    state_ = State::kFailed;
    effects.push_back(ReportReleased{});
  } else {
    fail(event.reason, FailureCause::kPeer, effects);
  }
}

void ReceiveSession::on(const CancelRequested& event, Instant now, Effects& effects) {
  if (state_ != State::kCancelling) {
    stop(event.reason, FailureCause::kCancelled, now, effects);
  }
}

void ReceiveSession::on(const WritesEnded& /*event*/, Instant /*now*/, Effects& effects) {
  PDJOB_CHECK(state_ == State::kReleasing);
  state_ = State::kFailed;
  effects.push_back(ReportReleased{});
}

void ReceiveSession::on(const LinkLost& event, Instant /*now*/, Effects& effects) {
  if (event.link != options_.link) {
    return;
  }
  const bool may_write = options_.peer_writes && event.loss == LinkLoss::kGivenUp &&
                         state_ != State::kRequested && state_ != State::kVerifying;
  if (state_ == State::kCancelling) {
    stall_deadline_ = kNever;
    if (!may_write) {
      state_ = State::kFailed;
      effects.push_back(ReportReleased{});
    }
  } else if (may_write) {
    state_ = State::kCancelling;
    stall_deadline_ = kNever;
    effects.push_back(
        ReportFailed{.reason = event.reason, .cause = FailureCause::kLink, .region_safe = false});
  } else {
    fail(event.reason, FailureCause::kLink, effects);
  }
}

void ReceiveSession::on(const TimePassed& /*event*/, Instant now, Effects& effects) {
  if (now < next_wakeup()) {
    return;
  }
  if (state_ == State::kCancelling) {
    stall_deadline_ = kNever;
    effects.push_back(
        FailLink{{ErrorCode::kTimeout, "the sender of KV rows did not answer a CANCEL"}});
  } else if (now >= stall_deadline_) {
    stop({ErrorCode::kTimeout, "KV rows were announced and did not arrive"}, FailureCause::kStalled,
         now, effects);
  } else {
    stop({ErrorCode::kTimeout, "the KV rows did not arrive in time"}, FailureCause::kTimeout, now,
         effects);
  }
}

void ReceiveSession::verify(Instant now, Effects& effects) {
  if (rows_arrived_ != rows_announced_) {
    return;
  }
  if (rows_arrived_ > 0 && commit_.digest != digest_arrived_) {
    const Error why{ErrorCode::kCorrupt, "KV rows do not match their digest"};
    stop(why, FailureCause::kDigest, now, effects);
    effects.push_back(FailLink{why});
    return;
  }
  state_ = State::kDone;
  effects.push_back(SendCommitted{});
  effects.push_back(
      ReportDone{.rows = commit_.rows, .bytes = commit_.bytes, .digest = commit_.digest});
}

void ReceiveSession::stop(Error reason, FailureCause cause, Instant now, Effects& effects) {
  if (state_ != State::kRequested) {
    effects.push_back(SendCancel{reason});
  }
  if (options_.peer_writes && is_receiving()) {
    state_ = State::kCancelling;
    stall_deadline_ = now + options_.stall_max;
    effects.push_back(
        ReportFailed{.reason = std::move(reason), .cause = cause, .region_safe = false});
  } else {
    fail(std::move(reason), cause, effects);
  }
}

void ReceiveSession::fail(Error reason, FailureCause cause, Effects& effects) {
  const bool safe = !options_.writes_late || state_ == State::kRequested;
  state_ = safe ? State::kFailed : State::kReleasing;
  stall_deadline_ = kNever;
  effects.push_back(ReportFailed{.reason = std::move(reason), .cause = cause, .region_safe = safe});
}

}  // namespace pdjob::kvtransfer
