// RaySession: what is due at a time, and when the next thing is.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "launcher/ray/ray_session.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kShimStarts = std::chrono::seconds(30);    // Python imports Ray.
constexpr Duration kReserveGrace = std::chrono::seconds(10);  // The shim itself has the timeout.

}  // namespace

void RaySession::advance(Turn& turn) {
  expire(turn);
  if (link_ == Link::kClosing && asked_.empty()) {
    link_due_ = turn.now;
  }
  advance_link(turn);
  if (!connected() || !synced_) {
    return;
  }
  advance_guests(turn);
  gather(turn);
  advance_agents(turn);
}

void RaySession::advance_link(Turn& turn) {
  if (turn.now < link_due_) {
    return;
  }
  switch (link_) {
    case Link::kNone:
      link_ = Link::kStarting;
      link_due_ = turn.now + kShimStarts;
      turn.effects.push_back(StartShim{});
      return;
    case Link::kStarting:
      return end_link("the shim does not start", turn);
    case Link::kClosing:
      turn.effects.push_back(EndShim{});
      return closed(all_given_back_ && asked_.empty(), turn);
    case Link::kOpen:
      // Ray has given up, too. A new shim is a new client of Ray.
      return end_link("the home cluster does not answer", turn);
    case Link::kOpening:
    case Link::kClosed:
      return;
  }
}

void RaySession::expire(Turn& turn) {
  while (true) {
    const auto late = std::ranges::find_if(
        asked_, [&](const auto& one) { return one.second.deadline <= turn.now; });
    if (late == asked_.end()) {
      return;
    }
    const Asked asked = std::move(late->second);
    asked_.erase(late);
    failed(asked, "timeout", "Ray did not answer in time", turn);
  }
}

void RaySession::advance_guests(Turn& turn) {
  for (RaySlot& slot : slots_) {
    if (slot.state == SlotState::kAway && slot.due <= turn.now && !slot.leaving) {
      // A slot has one job at a time: two nodes would claim one bundle.
      slot.submission.empty() ? join(slot, turn) : leave(slot, turn);
    } else if (slot.state == SlotState::kJoining && slot.due <= turn.now) {
      lose_node(slot, "cluster " + slot.cluster + " has no room, or its node cannot reach the home",
                turn);
    }
  }
}

void RaySession::gather(Turn& turn) {
  if (!gathered_ && waits_for(Purpose::kReserve)) {
    return;
  }
  std::vector<RaySlot*> ready;
  bool missing = false;
  for (RaySlot& slot : slots_) {
    if (slot.state == SlotState::kHere && slot.due <= turn.now) {
      ready.push_back(&slot);
    } else if (slot.required && slot.reservation.empty()) {
      missing = true;
    }
  }
  if (!gathered_) {  // What may be missing must not keep the others from their place.
    std::erase_if(ready, [](const RaySlot* slot) { return !slot->required; });
  }
  if (!ready.empty() && (gathered_ || !missing)) {
    reserve(ready, turn);
  } else if (!gathered_ && turn.now >= gather_due_) {
    give_back(turn);
  }
}

// Not all that is required came: others may need what we hold.
void RaySession::give_back(Turn& turn) {
  turn.say("Ray: not all nodes came in time; giving back those that did, to try again later");
  const Duration wait = pause(gather_failures_++);
  gather_due_ = turn.now + wait + patience(setting_.gather_timeout, gather_failures_);
  for (RaySlot& slot : slots_) {
    if (slot.guest) {
      leave(slot, turn);
      slot.node.clear();
      slot.state = SlotState::kAway;
      slot.due = turn.now + wait;
    }
  }
}

void RaySession::reserve(const std::vector<RaySlot*>& slots, Turn& turn) {
  Reserve request{.name = "r" + std::to_string(next_name_++), .timeout = setting_.reserve_timeout};
  for (RaySlot* slot : slots) {
    slot->state = SlotState::kReserving;
    slot->due = kNever;
    slot->reservation = request.name;
    slot->bundle = static_cast<uint32_t>(request.bundles.size());
    request.bundles.push_back(
        {.slot = slot->name, .guest = slot->guest, .share = cluster_of(*slot).share});
  }
  const std::string name = request.name;
  ask(Purpose::kReserve, name, std::move(request), setting_.reserve_timeout + kReserveGrace, turn);
}

void RaySession::advance_agents(Turn& turn) {
  for (RaySlot& slot : slots_) {
    if (slot.state == SlotState::kStarting && slot.due <= turn.now) {
      slot.state = SlotState::kReserved;
      back_off(slot, "its agent did not join", turn);
    }
    if (slot.state == SlotState::kReserved && slot.due <= turn.now) {
      slot.state = SlotState::kStarting;
      slot.due = kNever;
      // What is heard of an earlier start says nothing about this one.
      std::erase_if(asked_, [&](const auto& one) {
        return one.second.purpose == Purpose::kAgent && one.second.name == slot.name;
      });
      const uint64_t id = ask(Purpose::kAgent, slot.name, setting_.start_timeout, turn);
      turn.effects.push_back(
          StartSlotAgent{id, slot.name, slot.cluster, slot.reservation, slot.bundle});
    }
  }
}

void RaySession::plan_wakeup(Instant now) {
  wakeup_ = kNever;
  const auto wake_at = [&](Instant at) {
    if (at > now) {  // What is due and still waits, waits for something else.
      wakeup_ = std::min(wakeup_, at);
    }
  };
  if (link_ == Link::kClosed) {
    return;
  }
  wake_at(link_due_);
  for (const auto& [id, asked] : asked_) {
    wake_at(asked.deadline);
  }
  if (!connected() || !synced_) {
    return;
  }
  wake_at(gather_due_);
  for (const RaySlot& slot : slots_) {
    wake_at(slot.due);
  }
}

}  // namespace pdjob::launcher
