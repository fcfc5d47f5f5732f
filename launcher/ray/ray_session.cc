#include "launcher/ray/ray_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kHomeOpens = std::chrono::seconds(90);  // The first worker of a cluster is slow.
// A lost agent may come back by itself, when its link does.
constexpr Duration kAgentReturns = std::chrono::seconds(5);

std::vector<RaySlot> slots_of(const RaySetting& setting) {
  std::vector<RaySlot> slots;
  for (const RayClusterSetting& cluster : setting.clusters) {
    const bool guest = &cluster != &setting.clusters.front();
    for (uint32_t number = 0; number < cluster.nodes; ++number) {
      slots.push_back({.name = cluster.name + "." + std::to_string(number),
                       .cluster = cluster.name,
                       .guest = guest,
                       .required = number < cluster.nodes_min,
                       .state = guest ? SlotState::kAway : SlotState::kHere});
    }
  }
  return slots;
}

}  // namespace

RaySession::RaySession(RaySetting setting)
    : setting_(std::move(setting)), random_(setting_.seed), slots_(slots_of(setting_)) {
  PDJOB_CHECK(!setting_.clusters.empty());
  gathered_ = std::ranges::none_of(slots_, &RaySlot::required);
}

void RaySession::step(const RayEvent& event, Instant now, std::vector<RayEffect>& effects) {
  Turn turn{{now, effects}};
  if (link_ != Link::kClosed) {
    std::visit([&](const auto& one) { on(one, turn); }, event);
    advance(turn);
  }
  plan_wakeup(now);
}

// --- events

void RaySession::on(const ShimSaid& event, Turn& turn) {
  std::visit([&](const auto& line) { heard(line, turn); }, event.line);
}

void RaySession::on(const ShimGone& event, Turn& turn) {
  if (link_ != Link::kNone) {
    end_link(event.why, turn);
  }
}

void RaySession::on(const AgentCame& event, Turn& /*turn*/) {
  RaySlot* slot = find(event.slot);
  if (slot == nullptr ||
      (slot->state != SlotState::kStarting && slot->state != SlotState::kReserved)) {
    return;  // Its reservation is gone, and so it ends.
  }
  slot->state = SlotState::kUp;
  slot->due = kNever;
  slot->failures = 0;
  slot->trouble.clear();
}

void RaySession::on(const AgentLost& event, Turn& turn) {
  RaySlot* slot = find(event.slot);
  if (slot != nullptr && slot->state == SlotState::kUp) {
    slot->state = SlotState::kReserved;
    back_off(*slot, "its agent was lost", turn);
    slot->due = std::max(slot->due, turn.now + kAgentReturns);
  }
}

void RaySession::on(const RayCloseAsked& /*event*/, Turn& turn) {
  if (close_asked_) {
    return;
  }
  close_asked_ = true;
  const bool open = link_ == Link::kOpen;
  if (!open &&
      std::ranges::all_of(slots_, [](const RaySlot& slot) { return slot.submission.empty(); })) {
    // Without a reservation, or with one that the keeper removes.
    turn.effects.push_back(EndShim{});
    return closed(!touched_, turn);
  }
  all_given_back_ = open;
  const bool starts = link_ == Link::kNone || link_ == Link::kStarting;
  if (link_ == Link::kNone) {
    turn.effects.push_back(StartShim{});
  }
  link_ = starts ? Link::kStarting : Link::kClosing;
  link_due_ = turn.now + setting_.close_timeout;
  if (!starts) {
    give_back_all(open, turn);
  }
}

// `home`: it is open. Guests take back their nodes without it, and then the keeper does the rest.
void RaySession::give_back_all(bool home, Turn& turn) {
  // What is on its way to a guest must arrive before it can leave.
  std::erase_if(asked_, [](const auto& one) { return one.second.purpose != Purpose::kJoin; });
  for (RaySlot& slot : slots_) {
    leave(slot, turn);
  }
  if (home) {
    ask(Purpose::kClose, "", CloseHome{}, setting_.close_timeout, turn);
  }
}

// --- lines of the shim

void RaySession::heard(const ShimHello& line, Turn& turn) {
  if (link_ != Link::kStarting) {
    return end_link("it said hello twice", turn);
  }
  if (line.protocol != kShimProtocol) {
    return end_link("it speaks protocol " + std::to_string(line.protocol), turn);
  }
  if (close_asked_) {
    link_ = Link::kClosing;
    return give_back_all(false, turn);
  }
  link_ = Link::kOpening;
  link_due_ = kNever;
  touched_ = true;
  synced_ = reachable_ = false;
  for (RaySlot& slot : slots_) {
    slot.told = false;
  }
  ask(Purpose::kOpen, "",
      OpenHome{.name = setting_.clusters.front().name,
               .address = setting_.address,
               .job = setting_.job,
               .lease = setting_.lease,
               .reconnect = setting_.reconnect},
      kHomeOpens, turn);
}

void RaySession::heard(const ShimHasNoRay& line, Turn& turn) { end_link(line.text, turn); }

void RaySession::heard(const ShimDone& line, Turn& turn) {
  const auto found = asked_.find(line.id);
  if (found == asked_.end()) {
    return;  // It came after its deadline.
  }
  const Asked asked = std::move(found->second);
  asked_.erase(found);
  switch (asked.purpose) {
    case Purpose::kOpen:
      return opened(line.text, turn);
    case Purpose::kReserve:
      return heard(ReservationSeen{.name = asked.name, .nodes = split_names(line.text)}, turn);
    case Purpose::kLeave:
      return left(asked.name);
    case Purpose::kAgent:
      return agent_started(find(asked.name), line.text, turn);
    case Purpose::kJoin:
      if (RaySlot* slot = find(asked.name); slot != nullptr && link_ == Link::kClosing) {
        leave(*slot, turn);
      }
      return;
    case Purpose::kClose:
    case Purpose::kRelease:
      return;
  }
}

void RaySession::heard(const ShimRefused& line, Turn& turn) {
  if (const auto found = asked_.find(line.id); found != asked_.end()) {
    const Asked asked = std::move(found->second);
    asked_.erase(found);
    failed(asked, line.kind, line.text, turn);
  }
}

void RaySession::heard(const RayNodeSeen& line, Turn& turn) {
  for (RaySlot& slot : slots_) {
    if (!line.alive && slot.node == line.node) {
      lose_node(slot, "its node is lost" + (line.reason.empty() ? "" : ": " + line.reason), turn);
    }
  }
  RaySlot* slot = find(line.slot);
  if (!line.alive || slot == nullptr || !slot->guest) {
    return;
  }
  slot->told = true;
  if (slot->node == line.node) {
    return;
  }
  if (!slot->node.empty()) {
    lose_node(*slot, "another node took its place", turn);
  }
  slot->node = line.node;
  slot->state = slot->reservation.empty() ? SlotState::kHere : SlotState::kReserving;
  slot->due = slot->reservation.empty() ? Instant::min() : kNever;
  turn.say("Ray: a node of cluster " + slot->cluster + " joined from " + line.address, false);
  if (slot->bundle_node == line.node) {
    placed(*slot, line.node, turn);
  }
}

void RaySession::heard(const GuestEnded& line, Turn& turn) {
  RaySlot* slot = find(line.slot);
  if (slot == nullptr || slot->submission != line.submission) {
    return;
  }
  if (!slot->leaving) {  // Otherwise the answer to LeaveHome is still to come.
    left(slot->name);
  }
  lose_node(*slot, line.reason, turn);
}

void RaySession::heard(const ReservationSeen& line, Turn& turn) {
  const bool known = has_reservation(line.name);
  const bool whole = !line.nodes.empty() && std::ranges::find(line.nodes, "") == line.nodes.end();
  if (known && whole) {
    if (!gathered_) {
      turn.say("Ray: all required nodes are reserved: " + std::to_string(line.nodes.size()), false);
    }
    gathered_ = true;
  }
  // The shim that waited for it is gone, and nodes of guests wait with it.
  const bool abandoned = known && !gathered_ && !whole && !waits_for(Purpose::kReserve, line.name);
  if (link_ == Link::kOpen && !line.removed && (!known || abandoned)) {
    // Unknown: its Release overtook its Reserve, and may have no answer yet.
    ask(Purpose::kRelease, line.name, Release{line.name}, setting_.answer_timeout, turn);
  }
  for (RaySlot& slot : slots_) {
    if (slot.reservation != line.name) {
      continue;
    }
    if (line.removed || abandoned) {
      lose_reservation(slot, line.removed ? "its reservation is gone" : "there is no room", turn);
    } else {
      placed(slot, slot.bundle < line.nodes.size() ? line.nodes[slot.bundle] : "", turn);
    }
  }
}

void RaySession::heard(const HomeSeen& line, Turn& turn) {
  if (link_ != Link::kOpen && link_ != Link::kOpening) {
    return;
  }
  if (line.reachable && !synced_) {
    synced(turn);
  } else if (line.reachable != reachable_) {
    turn.say(line.reachable ? "Ray: the home cluster answers again"
                            : "Ray: the home cluster does not answer; what runs goes on");
  }
  link_due_ = line.reachable || link_ != Link::kOpen ? kNever : turn.now + setting_.reconnect;
  reachable_ = line.reachable;
  trouble_ = reachable_ ? "" : "the home cluster does not answer";
}

// --- the link to the shim

void RaySession::opened(const std::string& reservations, Turn& turn) {
  link_ = Link::kOpen;
  link_due_ = turn.now + setting_.reconnect;
  link_failures_ = 0;
  trouble_.clear();
  gather_due_ = turn.now + setting_.gather_timeout;
  const std::vector<std::string> there = split_names(reservations);
  for (RaySlot& slot : slots_) {
    if (!slot.reservation.empty() && std::ranges::find(there, slot.reservation) == there.end()) {
      lose_reservation(slot, "its reservation is gone", turn);
    }
  }
  for (const std::string& name : there) {
    if (!has_reservation(name)) {
      ask(Purpose::kRelease, name, Release{name}, setting_.answer_timeout, turn);
    }
  }
}

void RaySession::end_link(const std::string& why, Turn& turn) {
  turn.effects.push_back(EndShim{});
  if (close_asked_) {
    return closed(false, turn);
  }
  asked_.clear();
  link_ = Link::kNone;
  link_due_ = turn.now + pause(link_failures_++);
  reachable_ = false;
  if (trouble_ != why) {
    turn.say("Ray: " + why);
  }
  trouble_ = why;
  for (RaySlot& slot : slots_) {
    slot.leaving = false;
    if (slot.state == SlotState::kStarting && slot.due == kNever) {
      slot.due = turn.now + setting_.agent_timeout;  // Nobody knows whether it was started.
    }
  }
}

void RaySession::synced(Turn& turn) {
  synced_ = true;
  turn.say("Ray: the home cluster answers", false);
  for (RaySlot& slot : slots_) {
    if (slot.guest && !slot.told) {
      lose_node(slot, "its node is lost", turn);
    }
  }
}

void RaySession::closed(bool clean, Turn& turn) {
  link_ = Link::kClosed;
  asked_.clear();
  turn.effects.push_back(RayClosed{clean});
}

uint64_t RaySession::ask(Purpose purpose, const std::string& name, Duration timeout, Turn& turn) {
  const uint64_t id = next_id_++;
  asked_.emplace(id, Asked{purpose, name, turn.now + timeout});
  return id;
}

void RaySession::ask(Purpose purpose, const std::string& name, ShimRequest request,
                     Duration timeout, Turn& turn) {
  const uint64_t id = ask(purpose, name, timeout, turn);
  turn.effects.push_back(AskShim{id, std::move(request)});
}

void RaySession::failed(const Asked& asked, const std::string& kind, const std::string& why,
                        Turn& turn) {
  RaySlot* slot = find(asked.name);
  all_given_back_ = false;  // Counts only at the end.
  switch (asked.purpose) {
    case Purpose::kOpen:
      return end_link(why, turn);
    case Purpose::kJoin:
      if (slot != nullptr && slot->state == SlotState::kJoining) {
        lose_node(*slot, why, turn);  // It may have been submitted all the same.
      }
      return;
    case Purpose::kReserve:
      // After its deadline the shim may still reserve it.
      ask(Purpose::kRelease, asked.name, Release{asked.name}, setting_.answer_timeout, turn);
      for (RaySlot& one : slots_) {
        if (one.reservation == asked.name) {
          lose_reservation(one, kind == "no_room" ? "there is no room" : why, turn);
        }
      }
      return;
    case Purpose::kAgent:
      if (slot != nullptr && slot->state == SlotState::kStarting) {
        slot->state = SlotState::kReserved;
        back_off(*slot, why, turn);
      }
      return;
    case Purpose::kLeave:
      if (slot != nullptr) {
        slot->leaving = false;
        back_off(*slot, why, turn);
      }
      return;
    case Purpose::kClose:
    case Purpose::kRelease:
      return;  // A shim that opens again releases what it finds.
  }
}

// --- what is known

RaySlot* RaySession::find(std::string_view slot) {
  const auto found = std::ranges::find(slots_, slot, &RaySlot::name);
  return found == slots_.end() ? nullptr : &*found;
}

const RayClusterSetting& RaySession::cluster_of(const RaySlot& slot) const {
  return *std::ranges::find(setting_.clusters, slot.cluster, &RayClusterSetting::name);
}

bool RaySession::waits_for(Purpose purpose) const {
  return std::ranges::any_of(asked_,
                             [&](const auto& one) { return one.second.purpose == purpose; });
}

bool RaySession::waits_for(Purpose purpose, std::string_view name) const {
  return std::ranges::any_of(asked_, [&](const auto& one) {
    return one.second.purpose == purpose && one.second.name == name;
  });
}

bool RaySession::has_reservation(std::string_view name) const {
  return std::ranges::find(slots_, name, &RaySlot::reservation) != slots_.end();
}

}  // namespace pdjob::launcher
