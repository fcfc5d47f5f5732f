#include "launcher/scaling/autoscaler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/check.h"

namespace pdjob::launcher {

namespace {

// A worker too few by this part of one is not worth a worker.
constexpr double kDeadBand = 0.1;
// Workers are to hold this part of each target: at the whole of it, every second moment is above.
constexpr double kEase = 0.85;
// Fewer workers must hold so much of it. The gap between the two is what keeps the sizes still.
constexpr double kEaseDown = 0.6;
constexpr Duration kLookDown = std::chrono::seconds(5);  // How far ahead a smaller group looks.
// A worker that another group can spare for so long may go there; after a change of size, too.
constexpr Duration kFlipAfter = std::chrono::seconds(10);
// From a new worker's first request until the latencies show it.
constexpr Duration kSettle = std::chrono::seconds(5);
// A need that is gone sooner is noise.
constexpr Duration kUpAfter = std::chrono::seconds(1);
// A group that grows again within so many times its patience should not have shrunk. One that keeps
// its size for longer than the other is trusted again.
constexpr int kRegret = 12;
constexpr int kForgive = 40;
constexpr uint32_t kPatienceMax = 8;
constexpr Duration kStartTimeMax = std::chrono::minutes(5);

uint32_t whole(double workers) {
  constexpr double kMost = 1e6;
  return static_cast<uint32_t>(std::ceil(std::clamp(workers - kDeadBand, 0.0, kMost)));
}

// The workers that serve, or will soon.
uint32_t placed(uint32_t size, const GroupSample& sample) {
  return size - std::min(size, sample.waiting);
}

std::string ms_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms",
                std::chrono::duration<double, std::milli>(duration).count());
  return text;
}

std::string late_text(const char* what, Duration measured, Duration target) {
  return std::string(what) + " is " + ms_text(measured) + ", its target " + ms_text(target);
}

// A mean of few requests is above its target by chance.
bool late(const GroupModel::Mean& measured, Duration target) {
  const double count = std::max<double>(1, static_cast<double>(measured.count));
  return target > Duration::zero() && measured.value * (1 - 1 / std::sqrt(count)) > target;
}

}  // namespace

Autoscaler::Autoscaler(const std::vector<ScaledGroup>& groups, const JobScalingConfig& limits)
    : limits_(limits) {
  for (const ScaledGroup& each : groups) {
    groups_.push_back({.facts = each, .model = GroupModel(each.role, each.scaling)});
  }
}

std::vector<Decision> Autoscaler::step(const Observation& seen, Instant now) {
  PDJOB_CHECK(seen.groups.size() == groups_.size());
  decisions_.clear();
  for (size_t i = 0; i < groups_.size(); ++i) {
    look(groups_[i], seen.groups[i], seen.held, now);
  }
  // The group that is short of the largest part of its workers comes first.
  std::vector<size_t> order(groups_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::sort(order, {}, [&](size_t i) {
    return std::pair(-groups_[i].need / std::max(1U, groups_[i].to), i);
  });
  for (const size_t i : order) {
    grow(i, seen, now);
  }
  for (const size_t i : order) {
    shrink(i, seen, now);
  }
  wake_or_sleep(seen, now);
  return std::exchange(decisions_, {});
}

bool Autoscaler::scales(std::string_view group) const {
  return std::ranges::any_of(groups_, [&](const Group& each) {
    return each.facts.name == group && each.facts.scaling.on();
  });
}

void Autoscaler::look(Group& group, const GroupSample& sample, uint64_t held, Instant now) {
  if (group.changed == Instant{}) {
    group.changed = group.calm_since = now;
  }
  group.model.take(sample.workers, now, held);
  group.to = sample.wanted;
  if (sample.coming == 0 && group.coming_since != Instant{}) {
    group.start_time = (group.start_time + std::min(now - group.coming_since, kStartTimeMax)) / 2;
    group.coming_since = {};
    group.calm_since = now;
  } else if (sample.coming > 0 && group.coming_since == Instant{}) {
    group.coming_since = now;
  }
  GroupModel::Need need = group.model.need(group.start_time, kEase);
  group.need = need.workers;
  group.because = std::move(need.because);
  note_peak(group, whole(group.model.need(kLookDown, kEaseDown).workers), now);
}

// A need is kept while no later one is as large.
void Autoscaler::note_peak(Group& group, uint32_t need, Instant now) {
  while (!group.peaks.empty() && group.peaks.back().second <= need) {
    group.peaks.pop_back();
  }
  group.peaks.emplace_back(now, need);
  const Duration keep = std::max(group.facts.scaling.down_after, kFlipAfter) * group.patience;
  while (group.peaks.front().first + keep < now) {
    group.peaks.pop_front();
  }
}

uint32_t Autoscaler::peak(const Group& group, Duration within, Instant now) const {
  const auto first = std::ranges::find_if(
      group.peaks, [&](const auto& each) { return each.first + within >= now; });
  return first == group.peaks.end() ? 0 : first->second;
}

bool Autoscaler::settled(const Group& group, const GroupSample& sample, Duration quiet,
                         Instant now) const {
  return sample.coming == 0 && sample.leaving == 0 && now - group.changed >= quiet &&
         now - group.calm_since >= std::min(quiet, kSettle);
}

Autoscaler::Group* Autoscaler::partner_of(size_t index) {
  const ScaledGroup& own = groups_[index].facts;
  const auto found = std::ranges::find_if(groups_, [&](const Group& other) {
    return other.facts.model == own.model && other.facts.role != own.role;
  });
  return found == groups_.end() ? nullptr : &*found;
}

uint32_t Autoscaler::ceiling(size_t index, std::string& why) const {
  const Group& own = groups_[index];
  uint64_t most = own.facts.scaling.workers_max;
  why = "scaling.max is " + std::to_string(most);
  const auto limit = [&](uint64_t value, const std::string& reason) {
    if (value < most) {
      most = value;
      why = reason;
    }
  };
  uint64_t workers = 0;
  uint64_t gpu_percent = 0;
  for (const Group& each : groups_) {
    workers += &each == &own ? 0 : each.to;
    gpu_percent += &each == &own ? 0 : uint64_t{each.to} * each.facts.gpu_percent;
    const bool partner = each.facts.model == own.facts.model && each.facts.role != own.facts.role;
    const double ratio = own.facts.role == net::Role::kPrefill ? limits_.prefill_per_decode_max
                         : limits_.prefill_per_decode_min > 0  ? 1 / limits_.prefill_per_decode_min
                                                               : 0;
    if (partner && ratio > 0 && each.to > 0) {
      limit(std::max<uint64_t>(1, static_cast<uint64_t>(ratio * each.to + 1e-9)),
            "the ratio of prefill to decode workers is at its limit");
    }
  }
  if (limits_.workers_max > 0) {
    limit(limits_.workers_max > workers ? limits_.workers_max - workers : 0,
          "scaling.workers_max is " + std::to_string(limits_.workers_max));
  }
  if (limits_.gpus_max > 0 && own.facts.gpu_percent > 0) {
    const uint64_t most_percent = uint64_t{limits_.gpus_max} * 100;
    limit((most_percent - std::min(most_percent, gpu_percent)) / own.facts.gpu_percent,
          "scaling.gpus_max is " + std::to_string(limits_.gpus_max));
  }
  return static_cast<uint32_t>(most);
}

// Fewer would break the ratio, from the other side.
uint32_t Autoscaler::ratio_floor(size_t index) const {
  const Group& own = groups_[index];
  double least = 0;
  for (const Group& each : groups_) {
    if (each.facts.model != own.facts.model || each.facts.role == own.facts.role) {
      continue;
    }
    const double ratio = own.facts.role == net::Role::kPrefill ? limits_.prefill_per_decode_min
                         : limits_.prefill_per_decode_max > 0  ? 1 / limits_.prefill_per_decode_max
                                                               : 0;
    least = ratio * each.to;
  }
  return static_cast<uint32_t>(std::ceil(least - 1e-9));
}

void Autoscaler::decide(Group& group, uint32_t to, std::string reason, Instant now) {
  decisions_.push_back({.group = static_cast<size_t>(&group - groups_.data()),
                        .from = group.to,
                        .to = to,
                        .reason = std::move(reason)});
  group.to = to;
  group.changed = now;
}

void Autoscaler::regret(Group& group, Instant now) {
  const Duration quiet = group.facts.scaling.down_after * group.patience;
  if (group.shrank != Instant::min() && now - group.shrank < kRegret * quiet) {
    group.patience = std::min(kPatienceMax, 2 * group.patience);
    group.shrank = Instant::min();
  }
}

void Autoscaler::tell_stuck(Group& group, uint32_t want, const std::string& why) {
  if (!std::exchange(group.stuck, true)) {
    decisions_.push_back({.group = static_cast<size_t>(&group - groups_.data()),
                          .from = group.to,
                          .to = group.to,
                          .reason = "needs " + std::to_string(want) + ": " + why});
  }
}

bool Autoscaler::is_futile(Group& group, uint32_t there, const std::string& late) {
  const bool futile = group.model.useful() <= there;
  if (futile && !group.futile) {
    decisions_.push_back({.group = static_cast<size_t>(&group - groups_.data()),
                          .from = group.to,
                          .to = group.to,
                          .reason = late + "; no request waits, so more workers would not help"});
  }
  group.futile = futile;
  return futile;
}

void Autoscaler::grow(size_t index, const Observation& seen, Instant now) {
  Group& group = groups_[index];
  const GroupSample& sample = seen.groups[index];
  const GroupScaling& target = group.facts.scaling;
  if (!target.on() || sample.by_hand || group.to == 0) {
    return;
  }
  const uint32_t there = placed(group.to, sample);
  // A queue that does not exist cannot be shortened.
  const double most_of_use = std::max<double>(there, group.model.useful());
  auto want = static_cast<uint32_t>(std::min<double>(whole(group.need), most_of_use));
  std::string because = group.because;
  if (want <= there && settled(group, sample, kSettle, now)) {
    const GroupModel::Mean ttft = group.model.ttft();
    const GroupModel::Mean itl = group.model.itl();
    const bool late_first = late(ttft, target.ttft);
    const std::string missed = late_first              ? late_text("ttft", ttft.value, target.ttft)
                               : late(itl, target.itl) ? late_text("itl", itl.value, target.itl)
                                                       : "";
    if (!missed.empty() && !is_futile(group, there, missed)) {
      want = there + 1;
      because = missed;
      if (late_first) {
        group.model.missed_ttft();
      }
    }
  }
  if (want < floor_of(group)) {
    want = floor_of(group);
    because = "scaling.min is " + std::to_string(want);
  }
  if (want <= there) {
    group.stuck = false;
    group.short_since = {};
    return;
  }
  group.short_since = group.short_since == Instant{} ? now : group.short_since;
  if (now - group.short_since < kUpAfter) {
    return;
  }
  if (borrow(index, because, seen, now)) {
    return;
  }
  if (!sample.lack.empty()) {  // It is asked for already, and starts when a node has room.
    tell_stuck(group, want, because + "; but one has no place: " + sample.lack);
    return;
  }
  if (want <= group.to) {
    return;  // It has died, and is tried again.
  }
  want = std::min(want, 2 * group.to);
  std::string why;
  const uint32_t most = ceiling(index, why);
  if (most <= group.to) {
    tell_stuck(group, want, because + "; but " + why);
    return;
  }
  group.stuck = false;
  regret(group, now);
  decide(group, std::min(want, most), because, now);
}

// One at a time: the next step sees what it did. A worker that waits does not count: the other
// group drops those that it has, and one of this group makes way.
bool Autoscaler::borrow(size_t index, const std::string& because, const Observation& seen,
                        Instant now) {
  Group& group = groups_[index];
  Group* const other = partner_of(index);
  const uint32_t to = group.to + (seen.groups[index].waiting > 0 ? 0 : 1);
  if (other == nullptr || !other->facts.scaling.on() || to > group.facts.scaling.workers_max) {
    return false;
  }
  const auto number = static_cast<size_t>(other - groups_.data());
  const GroupSample& sample = seen.groups[number];
  const Duration quiet = kFlipAfter * other->patience;
  const uint32_t least = std::max({floor_of(*other), peak(*other, quiet, now), 1U});
  const uint32_t there = placed(other->to, sample);
  if (sample.by_hand || there <= least || other->facts.gpu_percent != group.facts.gpu_percent ||
      !settled(*other, sample, quiet, now)) {
    return false;
  }
  // The ratio after the change of both.
  const bool prefill = group.facts.role == net::Role::kPrefill;
  const double ratio = prefill ? to / (there - 1.0) : (there - 1.0) / to;
  const bool high = limits_.prefill_per_decode_max > 0 && ratio > limits_.prefill_per_decode_max;
  const bool low = limits_.prefill_per_decode_min > 0 && ratio < limits_.prefill_per_decode_min;
  if ((prefill && high) || (!prefill && low)) {
    return false;
  }
  regret(group, now);
  decide(*other, there - 1, "gives a worker to " + group.facts.name, now);
  other->shrank = now;
  decide(group, to, "takes a worker of " + other->facts.name + ": " + because, now);
  return true;
}

void Autoscaler::shrink(size_t index, const Observation& seen, Instant now) {
  Group& group = groups_[index];
  const GroupSample& sample = seen.groups[index];
  const GroupScaling& target = group.facts.scaling;
  const Duration quiet = target.down_after * group.patience;
  if (!target.on() || sample.by_hand || group.to == 0 || !settled(group, sample, quiet, now)) {
    return;
  }
  const uint32_t least =
      std::max({peak(group, quiet, now), floor_of(group), ratio_floor(index), 1U});
  if (least >= group.to) {
    return;
  }
  if (group.shrank != Instant::min() && now - group.shrank >= kForgive * quiet) {
    group.patience = std::max(1U, group.patience / 2);  // The last time was no mistake.
  }
  const uint32_t step = std::max({1U, group.to / 4, sample.waiting});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(quiet).count();
  decide(group, std::max(least, group.to - step),
         std::to_string(least) + " would have been enough for " + std::to_string(seconds) + " s",
         now);
  group.shrank = now;
}

void Autoscaler::wake_or_sleep(const Observation& seen, Instant now) {
  if (limits_.zero_after == Duration::zero()) {
    return;
  }
  const bool idle = seen.alive == 0 && std::ranges::all_of(groups_, [](const Group& group) {
                      return group.model.idle();
                    });
  busy_at_ = idle && busy_at_ != Instant{} ? busy_at_ : now;
  const bool by_hand =
      std::ranges::any_of(seen.groups, [](const GroupSample& each) { return each.by_hand; });
  for (Group& group : groups_) {
    if (group.to == 0 && seen.held > 0) {
      decide(group, floor_of(group), std::to_string(seen.held) + " requests wait at a router", now);
    } else if (group.to > 0 && now - busy_at_ >= limits_.zero_after && !by_hand) {
      const auto seconds =
          std::chrono::duration_cast<std::chrono::seconds>(limits_.zero_after).count();
      decide(group, 0, "no request for " + std::to_string(seconds) + " s", now);
    }
  }
}

}  // namespace pdjob::launcher
