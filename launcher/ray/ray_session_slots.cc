// RaySession: the life of one slot.
#include <algorithm>
#include <string>
#include <utility>

#include "launcher/ray/ray_session.h"

namespace pdjob::launcher {
namespace {

bool is_up(SlotState state) { return state == SlotState::kStarting || state == SlotState::kUp; }

}  // namespace

void RaySession::join(RaySlot& slot, Turn& turn) {
  const RayClusterSetting& cluster = cluster_of(slot);
  slot.submission = "pdjob-" + setting_.job + "-" + slot.name + "-" + std::to_string(next_name_++);
  slot.state = SlotState::kJoining;
  slot.due = turn.now + patience(setting_.join_timeout, slot.failures);
  ask(Purpose::kJoin, slot.name,
      JoinHome{.slot = slot.name,
               .submission = slot.submission,
               .cluster = slot.cluster,
               .dashboard = cluster.dashboard,
               .python = cluster.python,
               .share = cluster.share,
               .token_file = cluster.token_file,
               .home_token_file = cluster.home_token_file},
      setting_.answer_timeout, turn);
}

void RaySession::leave(RaySlot& slot, Turn& turn) {
  if (slot.submission.empty() || slot.leaving || waits_for(Purpose::kJoin, slot.name)) {
    return;  // A job leaves once it has arrived.
  }
  slot.leaving = true;
  const RayClusterSetting& cluster = cluster_of(slot);
  ask(Purpose::kLeave, slot.name,
      LeaveHome{.submission = slot.submission,
                .dashboard = cluster.dashboard,
                .token_file = cluster.token_file},
      setting_.answer_timeout, turn);
}

void RaySession::left(const std::string& name) {
  if (RaySlot* slot = find(name)) {
    slot->submission.clear();
    slot->leaving = false;
  }
}

void RaySession::lose_node(RaySlot& slot, const std::string& why, Turn& turn) {
  if (slot.node.empty() && slot.state != SlotState::kJoining) {
    return;  // Both the node and its job tell of one end.
  }
  slot.node.clear();
  if (slot.guest) {
    slot.state = SlotState::kAway;
  } else {
    slot.state = slot.reservation.empty() ? SlotState::kHere : SlotState::kReserving;
  }
  back_off(slot, why, turn);
  if (link_ == Link::kOpen) {
    leave(slot, turn);
  }
}

void RaySession::lose_reservation(RaySlot& slot, const std::string& why, Turn& turn) {
  slot.reservation.clear();
  slot.bundle_node.clear();
  if (!slot.guest) {
    slot.node.clear();
  }
  if (slot.state != SlotState::kAway && slot.state != SlotState::kJoining) {
    slot.state = SlotState::kHere;
    back_off(slot, why, turn);
  }
}

// The slot's bundle is on this node; empty: it waits for one.
void RaySession::placed(RaySlot& slot, const std::string& node, Turn& turn) {
  slot.bundle_node = node;
  if (node.empty()) {
    if (!slot.guest) {
      lose_node(slot, "its node is lost", turn);
    }
    return;  // A guest's node says itself whether it lives.
  }
  if (slot.guest && node != slot.node) {
    return;  // The node has just gone, or is about to be told.
  }
  if (slot.node != node && is_up(slot.state)) {
    lose_node(slot, "its bundle moved", turn);
  }
  slot.node = node;
  if (!is_up(slot.state) && slot.state != SlotState::kReserved) {
    slot.state = SlotState::kReserved;
    slot.due = turn.now;
  }
}

void RaySession::agent_started(RaySlot* slot, const std::string& sent, Turn& turn) {
  if (slot == nullptr) {
    return;
  }
  if (!sent.empty()) {
    turn.say("Ray: slot " + slot->name + ": " + sent, false);
  }
  if (slot->state == SlotState::kStarting) {
    slot->due = turn.now + setting_.agent_timeout;
  }
}

void RaySession::back_off(RaySlot& slot, const std::string& why, Turn& turn) {
  slot.due = turn.now + pause(slot.failures++);
  if (slot.trouble != why) {
    turn.say("Ray: slot " + slot.name + ": " + why);
  }
  slot.trouble = why;
}

Duration RaySession::pause(uint32_t failures) {
  constexpr uint32_t kDoublingsMax = 16;
  const Duration pause =
      std::min(setting_.pause_min * (1U << std::min(failures, kDoublingsMax)), setting_.pause_max);
  // Two jobs that want the same must not try in step.
  return std::chrono::duration_cast<Duration>(pause * (0.75 + random_.unit() / 2));
}

}  // namespace pdjob::launcher
