#include "kvtransfer/nccl/nccl_link.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"

namespace pdjob::kvtransfer {

void NcclLink::step(const Event& event, Instant now, Effects& effects) {
  std::visit([&](const auto& what) { on(what, now, effects); }, event);
}

bool NcclLink::at_rest() const {
  return waiting_.empty() &&
         std::ranges::all_of(slabs_, [](const Slab& slab) { return slab.use == Use::kFree; });
}

std::optional<uint32_t> NcclLink::free_slab() const {
  if (state_ != State::kReady || leaving_) {
    return std::nullopt;
  }
  const auto found = std::ranges::find(slabs_, Use::kFree, &Slab::use);
  return found == slabs_.end() ? std::nullopt
                               : std::optional(static_cast<uint32_t>(found - slabs_.begin()));
}

Instant NcclLink::next_wakeup() const {
  Instant earliest = deadline_;
  if (state_ == State::kReady) {
    for (const Slab& slab : slabs_) {
      earliest = std::min(earliest, slab.deadline);
    }
  }
  return earliest;
}

// --- opening

void NcclLink::on(const Wanted& event, Instant now, Effects& effects) {
  wanted_ = event.wanted;
  open_if_wanted(now, effects);
}

void NcclLink::open_if_wanted(Instant now, Effects& effects) {
  if (state_ == State::kIdle && wanted_) {
    state_ = State::kInit;
    deadline_ = now + options_.init_timeout;
    effects.push_back(MakeId{++epoch_});
  }
}

void NcclLink::on(const IdMade& event, Instant /*now*/, Effects& effects) {
  if (state_ == State::kInit && is_current(event.epoch)) {
    effects.push_back(Send{NcclOffer{.epoch = epoch_, .id = event.id}});
    effects.push_back(Join{.epoch = epoch_, .rank = 0, .id = event.id});
  }
}

void NcclLink::on(const NcclOffer& event, Instant now, Effects& effects) {
  if (state_ == State::kAborting || state_ == State::kClosed) {
    return;
  }
  const bool expected = event.epoch > epoch_ && !next_offer_ &&
                        (state_ == State::kIdle || state_ == State::kDraining);
  if (!expected) {
    return fail({ErrorCode::kCorrupt,
                 "unexpected NCCL offer of epoch " + std::to_string(event.epoch) + " on a KV link"},
                now, effects);
  }
  if (state_ == State::kDraining) {
    next_offer_ = event;
  } else {
    join(event, now, effects);
  }
}

void NcclLink::join(const NcclOffer& offer, Instant now, Effects& effects) {
  epoch_ = offer.epoch;
  state_ = State::kInit;
  deadline_ = now + options_.init_timeout;
  effects.push_back(Join{.epoch = epoch_, .rank = 1, .id = offer.id});
}

void NcclLink::on(const Joined& event, Instant now, Effects& effects) {
  if (state_ != State::kInit || !is_current(event.epoch)) {
    return;
  }
  state_ = State::kReady;
  deadline_ = kNever;
  slabs_announced_ = slabs_posted_ = 0;
  if (is_receiver()) {
    slabs_announced_ = waiting_.size();
    receive_waiting(now, effects);
  } else {
    effects.push_back(TellFree{});
  }
  if (leaving_) {  // The other end joined first and has already asked to leave.
    deadline_ = now + options_.slab_timeout;
    leave_if_done(now, effects);
  }
}

// --- sending

void NcclLink::on(const Taken& event, Instant /*now*/, Effects& /*effects*/) {
  PDJOB_CHECK(slabs_[event.slab].use == Use::kFree, event.slab);
  slabs_[event.slab].use = Use::kTaken;
}

void NcclLink::on(const Dropped& event, Instant now, Effects& effects) {
  PDJOB_CHECK(slabs_[event.slab].use == Use::kTaken, event.slab);
  free(slabs_[event.slab]);
  effects.push_back(TellFree{});
  leave_if_done(now, effects);
}

void NcclLink::on(const Packed& event, Instant now, Effects& effects) {
  if (state_ != State::kReady) {
    return;  // The communicator was aborted meanwhile.
  }
  Slab& slab = slabs_[event.slab];
  PDJOB_CHECK(slab.use == Use::kTaken && event.bytes <= options_.slab_bytes, event.slab);
  slab = {.use = Use::kAnnounced,
          .bytes = event.bytes,
          .number = slabs_announced_++,
          .transfer = event.transfer,
          .deadline = now + options_.slab_timeout};
  effects.push_back(Send{NcclSlab{
      .epoch = epoch_, .number = slab.number, .transfer = slab.transfer, .bytes = slab.bytes}});
}

void NcclLink::on(const NcclPosted& event, Instant now, Effects& effects) {
  if (state_ != State::kReady || !is_current(event.epoch)) {
    return;
  }
  const auto slab = std::ranges::find_if(slabs_, [&](const Slab& candidate) {
    return candidate.use == Use::kAnnounced && candidate.number == event.number;
  });
  // In order: the next slab sent must be the next one that the other end receives.
  if (slab == slabs_.end() || event.number != slabs_posted_) {
    return fail({ErrorCode::kCorrupt,
                 "NCCL slab " + std::to_string(event.number) + " was posted and not announced"},
                now, effects);
  }
  ++slabs_posted_;
  slab->use = Use::kMoving;
  slab->deadline = now + options_.slab_timeout;
  effects.push_back(StartSend{
      .epoch = epoch_, .slab = static_cast<uint32_t>(slab - slabs_.begin()), .bytes = slab->bytes});
}

// --- receiving

void NcclLink::on(const NcclSlab& event, Instant now, Effects& effects) {
  const bool expected = state_ == State::kInit || state_ == State::kReady;
  if (!expected || !is_current(event.epoch)) {
    return;
  }
  const uint64_t number = state_ == State::kInit ? waiting_.size() : slabs_announced_;
  if (event.number != number || event.bytes == 0 || event.bytes > options_.slab_bytes ||
      waiting_.size() >= options_.slabs || peer_left_) {
    return fail({ErrorCode::kCorrupt, "NCCL slab " + std::to_string(event.number) + " of " +
                                          std::to_string(event.bytes) + " bytes, expected number " +
                                          std::to_string(number)},
                now, effects);
  }
  waiting_.push_back(event);
  if (state_ == State::kReady) {
    ++slabs_announced_;
    receive_waiting(now, effects);
  }
}

void NcclLink::receive_waiting(Instant now, Effects& effects) {
  for (size_t i = 0; i < slabs_.size() && !waiting_.empty(); ++i) {
    if (slabs_[i].use != Use::kFree) {
      continue;
    }
    const NcclSlab& next = waiting_.front();
    slabs_[i] = {.use = Use::kMoving,
                 .bytes = next.bytes,
                 .number = next.number,
                 .transfer = next.transfer,
                 .deadline = now + options_.slab_timeout};
    effects.push_back(StartReceive{.epoch = epoch_,
                                   .slab = static_cast<uint32_t>(i),
                                   .bytes = next.bytes,
                                   .transfer = next.transfer});
    effects.push_back(Send{NcclPosted{.epoch = epoch_, .number = next.number}});
    waiting_.pop_front();
  }
}

void NcclLink::on(const Moved& event, Instant now, Effects& effects) {
  if (state_ != State::kReady || !is_current(event.epoch)) {
    return;
  }
  Slab& slab = slabs_[event.slab];
  PDJOB_CHECK(slab.use == Use::kMoving, event.slab);
  slab.deadline = kNever;
  if (is_receiver()) {
    slab.use = Use::kFilled;
    effects.push_back(
        TellFilled{.slab = event.slab, .bytes = slab.bytes, .transfer = slab.transfer});
  } else {
    free(slab);
    effects.push_back(TellFree{});
    leave_if_done(now, effects);
  }
  release_ended(effects);
}

void NcclLink::on(const Emptied& event, Instant now, Effects& effects) {
  if (state_ != State::kReady) {
    return;
  }
  PDJOB_CHECK(slabs_[event.slab].use == Use::kFilled, event.slab);
  free(slabs_[event.slab]);
  receive_waiting(now, effects);
  leave_if_done(now, effects);
}

// --- giving rows back

void NcclLink::on(const Ended& event, Instant /*now*/, Effects& effects) {
  ended_.push_back(event.transfer);
  release_ended(effects);
}

// An announced slab is sent even if its transfer ends, because the other end already receives it.
// Work on the GPU's stream cannot be removed, not even by an abort.
bool NcclLink::is_under_way(TransferId transfer) const {
  return std::ranges::any_of(slabs_, [&](const Slab& slab) {
    const bool will_start = slab.use == Use::kAnnounced && state_ == State::kReady;
    const bool may_run = slab.use == Use::kMoving && state_ != State::kClosed;
    return slab.transfer == transfer && (will_start || may_run);
  });
}

void NcclLink::release_ended(Effects& effects) {
  std::erase_if(ended_, [&](TransferId transfer) {
    const bool over = !is_under_way(transfer);
    if (over) {
      effects.push_back(Release{transfer});
    }
    return over;
  });
}

// --- leaving

void NcclLink::on(const LeaveRequested& /*event*/, Instant now, Effects& effects) {
  if (state_ != State::kReady || leaving_) {
    return;
  }
  leaving_ = true;
  deadline_ = now + options_.slab_timeout;
  if (is_receiver()) {
    // Only a request: slabs may be on their way, and the sender knows which is the last.
    effects.push_back(Send{NcclLeave{epoch_}});
  }
  leave_if_done(now, effects);
}

void NcclLink::on(const NcclLeave& event, Instant now, Effects& effects) {
  const bool expected = state_ == State::kInit || state_ == State::kReady;
  if (!expected || !is_current(event.epoch)) {
    return;
  }
  leaving_ = true;
  peer_left_ = is_receiver();
  if (state_ == State::kReady) {
    deadline_ = now + options_.slab_timeout;
    leave_if_done(now, effects);
  }
}

// The sender reports when its last slab is sent; the receiver may still have to empty it.
void NcclLink::leave_if_done(Instant now, Effects& effects) {
  const bool last = is_receiver() ? peer_left_ : leaving_;
  if (state_ != State::kReady || !last || !at_rest()) {
    return;
  }
  if (!is_receiver()) {
    effects.push_back(Send{NcclLeave{epoch_}});
  }
  drain(now, effects);
}

void NcclLink::drain(Instant now, Effects& effects) {
  state_ = State::kDraining;
  deadline_ = now + options_.slab_timeout;
  effects.push_back(Leave{epoch_});
}

void NcclLink::on(const Left& event, Instant now, Effects& effects) {
  if (!is_current(event.epoch)) {
    return;
  }
  deadline_ = kNever;
  if (state_ == State::kAborting) {
    state_ = State::kClosed;
    release_ended(effects);
  } else if (state_ == State::kDraining) {
    state_ = State::kIdle;
    leaving_ = peer_left_ = false;
    if (next_offer_) {
      join(*std::exchange(next_offer_, std::nullopt), now, effects);
    }
    open_if_wanted(now, effects);
  }
}

// --- failing

void NcclLink::on(const Failed& event, Instant now, Effects& effects) {
  if (is_current(event.epoch)) {
    fail(event.reason, now, effects);
  }
}

void NcclLink::on(const LinkLost& /*event*/, Instant now, Effects& effects) { abort(now, effects); }

void NcclLink::on(const TimePassed& /*event*/, Instant now, Effects& effects) {
  if (now < next_wakeup()) {
    return;
  }
  switch (state_) {
    case State::kInit:
      return fail({ErrorCode::kTimeout, "the peer did not join an NCCL communicator in time"}, now,
                  effects);
    case State::kReady:
      return fail({ErrorCode::kTimeout, "KV rows did not move over NCCL in time"}, now, effects);
    case State::kDraining:
      return fail({ErrorCode::kTimeout, "the peer did not leave an NCCL communicator in time"}, now,
                  effects);
    case State::kAborting:
      // A process that was stopped meanwhile gets a little time to read NCCL's word.
      if (!std::exchange(looks_again_, true)) {
        deadline_ = now + options_.abort_timeout / 4;
        return;
      }
      deadline_ = kNever;
      effects.push_back(ReportStuck{});
      return;
    case State::kIdle:
    case State::kClosed:
      return;
  }
}

void NcclLink::fail(Error reason, Instant now, Effects& effects) {
  if (state_ == State::kAborting || state_ == State::kClosed) {
    return;
  }
  abort(now, effects);
  effects.push_back(FailLink{std::move(reason)});
}

void NcclLink::abort(Instant now, Effects& effects) {
  if (state_ == State::kAborting || state_ == State::kClosed) {
    return;
  }
  const bool exists = open();
  state_ = exists ? State::kAborting : State::kClosed;
  looks_again_ = false;
  deadline_ = exists ? now + options_.abort_timeout : kNever;
  waiting_.clear();
  if (exists) {
    effects.push_back(Abort{epoch_});
  }
  release_ended(effects);
}

void NcclLink::free(Slab& slab) { slab = {}; }

}  // namespace pdjob::kvtransfer
