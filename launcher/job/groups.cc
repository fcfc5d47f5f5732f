#include "launcher/job/groups.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "launcher/job/job.h"

namespace pdjob::launcher {

namespace {

bool changes_role(const Process& process) { return process.fate == Fate::kChangeRole; }

bool can_change_role(const Process& process) {
  return process.serving() && process.fate == Fate::kRestart &&
         (process.role == net::Role::kPrefill || process.role == net::Role::kDecode);
}

bool is_outdated(const JobGroup& group, const Process& process) {
  return process.spec != group.spec;
}

bool serves_and_stays(const Process* process) {
  return process->state == ProcessState::kReady && process->fate == Fate::kRestart &&
         !process->suspected;
}

// The only one of its group is served for by a second one, while there is room for that.
bool gets_a_second(const JobGroup& group, const std::vector<const Process*>& members,
                   const Job& job) {
  return group.size() == 1 && members.size() == 1 && serves_and_stays(members.front()) &&
         is_outdated(group, *members.front()) && group.most != 1 && job.room(group.demand, 1) > 0;
}

// A second one that starts, or has served for a moment only.
bool waits_for_second(const JobGroup& group, const std::vector<const Process*>& members,
                      Instant now) {
  const auto outdated = [&](const Process* one) {
    return is_outdated(group, *one) && serves_and_stays(one);
  };
  const auto coming = [&](const Process* one) {
    return !is_outdated(group, *one) && now < settled_at(*one);
  };
  return group.size() == 1 && members.size() == 2 && std::ranges::any_of(members, outdated) &&
         std::ranges::any_of(members, coming);
}

// The one that is missed least comes first.
std::tuple<bool, bool, uint64_t, uint64_t, uint64_t> missed(const Process& process) {
  const net::WorkerLoad& load = process.load;
  return {process.serving() && !process.suspected,
          process.state == ProcessState::kReady && !process.spare,
          uint64_t{load.requests_running} + load.requests_queued, load.kv_rows_used,
          ~process.order};
}

bool partners(const JobGroup& one, const JobGroup& other) {
  return one.model == other.model && one.role != other.role;
}

std::vector<const Process*> surplus(const JobGroup& group, std::vector<const Process*> members,
                                    Instant now) {
  if (members.size() <= group.size() || waits_for_second(group, members, now)) {
    return {};
  }
  const size_t too_many = members.size() - group.size();
  const bool keeps_spares = std::cmp_less_equal(
      std::ranges::count_if(members, [](const Process* one) { return one->stands_by(); }),
      group.spares);
  std::erase_if(members, [](const Process* process) { return changes_role(*process); });
  std::ranges::sort(members, {}, [&](const Process* process) {
    const bool serves = process->serving() && !process->suspected;
    return std::tuple(keeps_spares && process->stands_by(), serves, !is_outdated(group, *process),
                      missed(*process));
  });
  members.resize(std::min(members.size(), too_many));
  return members;
}

// A group while its next steps are found.
struct Standing {
  std::vector<const Process*> members;
  int64_t lacks = 0;  // Workers.
  std::vector<const Process*> leaving;
  std::vector<const Process*> waiting;  // Of those that stay.
};

Standing standing_of(const JobGroup& group, const Job& job, Instant now) {
  Standing standing{.members = members_of(group, job)};
  const std::vector<const Process*>& members = standing.members;
  standing.lacks = int64_t{group.size()} - static_cast<int64_t>(members.size()) +
                   (gets_a_second(group, members, job) ? 1 : 0);
  standing.leaving = surplus(group, members, now);
  std::ranges::copy_if(members, std::back_inserter(standing.waiting), [&](const Process* one) {
    return waits(*one) && std::ranges::count(standing.leaving, one) == 0;
  });
  return standing;
}

// `other`: where the model's other group stands; null: there is none.
void append_leaving(const Standing& standing, const JobGroup* partner, Standing* other,
                    std::vector<GroupStep>& steps) {
  using enum GroupStep::Kind;
  for (const Process* process : standing.leaving) {
    if (other == nullptr || !can_change_role(*process) ||
        (other->lacks <= 0 && other->waiting.empty())) {
      steps.push_back({.kind = kRetire, .process = process->name});
      continue;
    }
    if (other->lacks > 0) {
      --other->lacks;
    } else {
      steps.push_back({.kind = kRetire, .process = other->waiting.back()->name});
      other->waiting.pop_back();
    }
    steps.push_back({.kind = kStartAgain, .process = process->name, .group = partner});
  }
}

void append_new(const JobGroup& group, int64_t lacks, std::set<std::string>& taken,
                std::vector<GroupStep>& steps) {
  for (uint32_t i = 0; lacks > 0; ++i) {
    const std::string name = group.name + "-" + std::to_string(i);
    if (taken.insert(name).second) {
      --lacks;
      steps.push_back({.kind = GroupStep::Kind::kAdd, .process = name, .group = &group});
    }
  }
}

void append_replacement(const JobGroup& group, std::vector<const Process*> members, const Job& job,
                        Instant now, std::vector<GroupStep>& steps) {
  const bool leaves = std::ranges::any_of(job.processes(), [&](const Process& process) {
    return process.role == group.role && process.model == group.model && process.fate == Fate::kEnd;
  });
  // Nothing can prove it any more: its partners have gone back.
  const auto stranded = std::ranges::find_if(members, [&](const Process* one) {
    return is_outdated(group, *one) && one->state == ProcessState::kRegistered &&
           one->fate == Fate::kRestart;
  });
  if (stranded != members.end()) {
    steps.push_back(
        {.kind = GroupStep::Kind::kStartAgain, .process = (*stranded)->name, .group = &group});
    return;
  }
  const auto settled = [&](const Process* one) {
    return serves_and_stays(one) && (is_outdated(group, *one) || now >= settled_at(*one));
  };
  if (leaves || members.size() != group.size() || gets_a_second(group, members, job) ||
      !std::ranges::all_of(members, settled)) {
    return;
  }
  std::erase_if(members, [&](const Process* one) { return !is_outdated(group, *one); });
  if (!members.empty()) {
    const Process* const next = *std::ranges::min_element(
        members, {}, [](const Process* process) { return missed(*process); });
    steps.push_back({.kind = GroupStep::Kind::kStartAgain, .process = next->name, .group = &group});
  }
}

}  // namespace

std::vector<const Process*> members_of(const JobGroup& group, const Job& job) {
  std::vector<const Process*> members;
  for (const Process& process : job.processes()) {
    const net::Role role = changes_role(process) ? process.next_role : process.role;
    if (process.fate != Fate::kEnd && role == group.role && process.model == group.model) {
      members.push_back(&process);
    }
  }
  return members;
}

bool waits(const Process& process) {
  return process.state == ProcessState::kWaiting || process.state == ProcessState::kBackoff;
}

Instant settled_at(const Process& process) {
  constexpr Duration kSettled = std::chrono::seconds(3);
  return process.state == ProcessState::kReady && process.fate == Fate::kRestart
             ? process.since + kSettled
             : kNever;
}

std::vector<GroupStep> next_steps(const std::vector<JobGroup>& groups, const Job& job,
                                  Instant now) {
  std::vector<Standing> standings;
  for (const JobGroup& group : groups) {
    standings.push_back(standing_of(group, job, now));
  }
  std::vector<GroupStep> steps;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto partner = std::ranges::find_if(
        groups, [&](const JobGroup& each) { return partners(groups[i], each); });
    const bool has_partner = partner != groups.end();
    append_leaving(
        standings[i], has_partner ? &*partner : nullptr,
        has_partner ? &standings[static_cast<size_t>(partner - groups.begin())] : nullptr, steps);
  }
  std::set<std::string> taken;
  if (std::ranges::any_of(standings, [](const Standing& each) { return each.lacks > 0; })) {
    for (const Process& process : job.processes()) {
      taken.insert(process.name);
    }
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    append_new(groups[i], standings[i].lacks, taken, steps);
    append_replacement(groups[i], std::move(standings[i].members), job, now, steps);
  }
  return steps;
}

std::vector<SpareChange> spare_changes(const std::vector<JobGroup>& groups, const Job& job) {
  std::vector<SpareChange> changes;
  const auto change = [&changes](const Process& process, bool spare) {
    if (process.spare != spare) {
      changes.push_back({.process = process.name, .spare = spare});
    }
  };
  for (const JobGroup& group : groups) {
    uint32_t serving = 0;
    std::vector<const Process*> able;
    for (const Process* one : members_of(group, job)) {
      if (group.spares == 0) {
        change(*one, false);
      } else if (!serves_and_stays(one)) {
        change(*one, one->fate == Fate::kRestart);
      } else if (one->spare) {
        able.push_back(one);
      } else {
        ++serving;
      }
    }
    for (const Process* one : able) {
      if (serving < group.wanted) {
        change(*one, false);
        ++serving;
      }
    }
  }
  return changes;
}

bool up_to_date(const std::vector<JobGroup>& groups, const Job& job) {
  return std::ranges::all_of(groups, [&](const JobGroup& group) {
    return std::ranges::none_of(members_of(group, job), [&](const Process* one) {
      return is_outdated(group, *one) && one->fate == Fate::kRestart;
    });
  });
}

}  // namespace pdjob::launcher
