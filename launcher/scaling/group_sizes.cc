#include "launcher/scaling/group_sizes.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "launcher/job/process_names.h"

namespace pdjob::launcher {

namespace {

bool changes_role(const Process& process) { return process.fate == Fate::kChangeRole; }

bool can_change_role(const Process& process) {
  return process.serving() && process.fate == Fate::kRestart &&
         (process.role == net::Role::kPrefill || process.role == net::Role::kDecode);
}

bool is_outdated(const SizedGroup& group, const Process& process) {
  return process.spec != group.spec;
}

bool serves_and_stays(const Process* process) {
  return process->state == ProcessState::kReady && process->fate == Fate::kRestart &&
         !process->suspected;
}

// The only one of its group is served for by a second one, while there is room for that.
bool gets_a_second(const SizedGroup& group, const std::vector<const Process*>& members,
                   const Job& job) {
  return group.wanted == 1 && members.size() == 1 && serves_and_stays(members.front()) &&
         is_outdated(group, *members.front()) && group.most != 1 && job.room(group.demand, 1) > 0;
}

// A second one that starts, or has served for a moment only.
bool waits_for_second(const SizedGroup& group, const std::vector<const Process*>& members,
                      Instant now) {
  const auto outdated = [&](const Process* one) {
    return is_outdated(group, *one) && serves_and_stays(one);
  };
  const auto coming = [&](const Process* one) {
    return !is_outdated(group, *one) && now < settled_at(*one);
  };
  return group.wanted == 1 && members.size() == 2 && std::ranges::any_of(members, outdated) &&
         std::ranges::any_of(members, coming);
}

// The one that is missed least comes first.
std::tuple<bool, bool, uint64_t, uint64_t, uint64_t> missed(const Process& process) {
  const net::WorkerLoad& load = process.load;
  return {process.serving() && !process.suspected, process.state == ProcessState::kReady,
          uint64_t{load.requests_running} + load.requests_queued, load.kv_rows_used,
          ~process.order};
}

bool partners(const SizedGroup& one, const SizedGroup& other) {
  return one.model == other.model && one.role != other.role;
}

std::string workers_text(uint32_t count) {
  return std::to_string(count) + (count == 1 ? " worker" : " workers");
}

}  // namespace

std::vector<const Process*> members_of(const SizedGroup& group, const Job& job) {
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

const SizedGroup* GroupSizes::find(std::string_view name) const {
  const auto found = std::ranges::find(groups_, name, &SizedGroup::name);
  return found == groups_.end() ? nullptr : &*found;
}

void GroupSizes::want(std::string_view name, uint32_t wanted) {
  const auto found = std::ranges::find(groups_, name, &SizedGroup::name);
  PDJOB_CHECK(found != groups_.end(), std::string(name));
  found->wanted = wanted;
}

void GroupSizes::change(std::string_view name, const Demand& demand, const std::string& spec) {
  const auto found = std::ranges::find(groups_, name, &SizedGroup::name);
  PDJOB_CHECK(found != groups_.end(), std::string(name));
  found->demand = demand;
  found->spec = spec;
}

void GroupSizes::keep(const std::vector<std::pair<std::string, uint32_t>>& sizes) {
  for (const auto& [name, size] : sizes) {
    if (find(name) != nullptr) {
      want(name, size);
    }
  }
}

void GroupSizes::keep(const Job& job) {
  const bool asleep = std::ranges::all_of(
      groups_, [&](const SizedGroup& group) { return members_of(group, job).empty(); });
  for (SizedGroup& group : groups_) {
    const auto there = static_cast<uint32_t>(members_of(group, job).size());
    group.wanted = there > 0 || asleep ? there : group.wanted;
  }
}

Status GroupSizes::check(const std::map<std::string, uint32_t>& wanted) const {
  for (const auto& [name, size] : wanted) {
    if (find(name) == nullptr) {
      std::string why = "there is no group ";
      why.append(name).append(": this job has ");
      for (const SizedGroup& group : groups_) {
        why.append(&group == &groups_.front() ? "" : ", ").append(group.name);
      }
      return Error{ErrorCode::kInvalidArgument, why};
    }
    if (size < 1 || size > limits_.workers_per_group_max) {
      return Error{ErrorCode::kInvalidArgument, name + " can have 1 to " +
                                                    workers_text(limits_.workers_per_group_max) +
                                                    ", not " + std::to_string(size)};
    }
  }
  return ok();
}

Status GroupSizes::set(const std::map<std::string, uint32_t>& wanted, const Job& job) {
  PDJOB_TRY_STATUS(check(wanted));
  std::vector<SizedGroup> groups = groups_;
  uint64_t workers = 0;
  bool shrinks = false;  // It makes room that nobody knows of yet.
  for (SizedGroup& group : groups) {
    const auto found = wanted.find(group.name);
    group.wanted = found == wanted.end() ? group.wanted : found->second;
    shrinks = shrinks || group.wanted < members_of(group, job).size();
    workers += group.wanted;
  }
  if (workers > limits_.workers_max) {
    return Error{ErrorCode::kInvalidArgument, "all groups together can have at most " +
                                                  workers_text(limits_.workers_max) + ", not " +
                                                  std::to_string(workers)};
  }
  for (const SizedGroup& group : groups) {
    const uint64_t there = members_of(group, job).size();
    if (shrinks || !wanted.contains(group.name) || group.wanted <= there) {
      continue;
    }
    const uint64_t more = group.wanted - there;
    if (const uint64_t room = job.room(group.demand, more); room < more) {
      return Error{ErrorCode::kUnavailable,
                   workers_text(group.wanted) + " for " + group.name + " do not fit: " +
                       (room > 0 ? "there is room for " + std::to_string(there + room)
                                 : job.lack(group.demand))};
    }
  }
  groups_ = std::move(groups);
  return ok();
}

std::vector<const Process*> GroupSizes::surplus(const SizedGroup& group, const Job& job,
                                                Instant now) const {
  std::vector<const Process*> members = members_of(group, job);
  if (members.size() <= group.wanted || waits_for_second(group, members, now)) {
    return {};
  }
  const size_t too_many = members.size() - group.wanted;
  std::erase_if(members, [](const Process* process) { return changes_role(*process); });
  std::ranges::sort(members, {}, [&](const Process* process) {
    const bool serves = process->serving() && !process->suspected;
    return std::tuple(serves, !is_outdated(group, *process), missed(*process));
  });
  members.resize(std::min(members.size(), too_many));
  return members;
}

std::vector<Event> GroupSizes::orders(const Job& job, Instant now) const {
  std::vector<Event> orders;
  if (job.state() != JobState::kReady) {
    return orders;
  }
  std::map<std::string, int64_t> lacks;  // By group.
  std::map<std::string, std::vector<const Process*>> leaving;
  std::map<std::string, std::vector<const Process*>> waiting;  // Of those that stay.
  for (const SizedGroup& group : groups_) {
    const std::vector<const Process*> members = members_of(group, job);
    lacks[group.name] = int64_t{group.wanted} - static_cast<int64_t>(members.size()) +
                        (gets_a_second(group, members, job) ? 1 : 0);
    leaving[group.name] = surplus(group, job, now);
    std::ranges::copy_if(members, std::back_inserter(waiting[group.name]), [&](const Process* one) {
      return waits(*one) && std::ranges::count(leaving[group.name], one) == 0;
    });
  }
  for (const SizedGroup& group : groups_) {
    const auto other = std::ranges::find_if(
        groups_, [&](const SizedGroup& each) { return partners(group, each); });
    const std::string partner = other == groups_.end() ? "" : other->name;
    for (const Process* process : leaving[group.name]) {
      if (!can_change_role(*process) || (lacks[partner] <= 0 && waiting[partner].empty())) {
        orders.emplace_back(RetireAsked{process->name});
        continue;
      }
      if (lacks[partner] > 0) {
        --lacks[partner];
      } else {
        orders.emplace_back(RetireAsked{waiting[partner].back()->name});
        waiting[partner].pop_back();
      }
      orders.emplace_back(RoleChangeAsked{process->name, other->role});
    }
  }
  std::set<std::string> taken;
  for (const Process& process : job.processes()) {
    taken.insert(process.name);
  }
  for (const SizedGroup& group : groups_) {
    for (uint32_t i = 0; lacks[group.name] > 0; ++i) {
      const std::string name = group.name + "-" + std::to_string(i);
      if (taken.insert(name).second) {
        --lacks[group.name];
        orders.emplace_back(ProcessAdded{
            {.name = name, .role = group.role, .model = group.model, .demand = group.demand}});
      }
    }
    append_replacements(group, job, now, orders);
  }
  return orders;
}

bool GroupSizes::up_to_date(const Job& job) const {
  return std::ranges::all_of(groups_, [&](const SizedGroup& group) {
    return std::ranges::none_of(members_of(group, job), [&](const Process* one) {
      return is_outdated(group, *one) && one->fate == Fate::kRestart;
    });
  });
}

void GroupSizes::append_replacements(const SizedGroup& group, const Job& job, Instant now,
                                     std::vector<Event>& orders) {
  std::vector<const Process*> members = members_of(group, job);
  const bool leaves = std::ranges::any_of(job.processes(), [&](const Process& process) {
    return process.role == group.role && process.model == group.model && process.fate == Fate::kEnd;
  });
  // Nothing can prove it any more: its partners have gone back.
  const auto stranded = std::ranges::find_if(members, [&](const Process* one) {
    return is_outdated(group, *one) && one->state == ProcessState::kRegistered &&
           one->fate == Fate::kRestart;
  });
  if (stranded != members.end()) {
    orders.emplace_back(ReplaceAsked{.name = (*stranded)->name, .slow = false});
    return;
  }
  const auto settled = [&](const Process* one) {
    return serves_and_stays(one) && (is_outdated(group, *one) || now >= settled_at(*one));
  };
  if (leaves || members.size() != group.wanted || gets_a_second(group, members, job) ||
      !std::ranges::all_of(members, settled)) {
    return;
  }
  std::erase_if(members, [&](const Process* one) { return !is_outdated(group, *one); });
  if (!members.empty()) {
    const Process* const next = *std::ranges::min_element(
        members, {}, [](const Process* process) { return missed(*process); });
    orders.emplace_back(ReplaceAsked{.name = next->name, .slow = false});
  }
}

GroupProgress GroupSizes::progress(const SizedGroup& group, const Job& job) const {
  GroupProgress progress{.wanted = group.wanted};
  std::vector<std::pair<std::string, std::vector<std::string>>> missing;  // By what they do.
  const auto wait_for = [&missing](const std::string& what, const std::string& name) {
    const auto known = std::ranges::find(missing, what, [](const auto& one) { return one.first; });
    (known == missing.end() ? missing.emplace_back(what, std::vector<std::string>()) : *known)
        .second.push_back(name);
  };
  for (const Process* process : members_of(group, job)) {
    if (process->state == ProcessState::kReady && !changes_role(*process)) {
      ++progress.serving;
      continue;
    }
    wait_for(!changes_role(*process)               ? to_string(process->state)
             : process->next_role == process->role ? "starting again"
                                                   : "changing roles",
             process->name);
    if (process->state == ProcessState::kWaiting && !changes_role(*process)) {
      progress.trouble =
          process->name + " waits for a node with room: " + job.lack(process->demand);
    } else if (process->state == ProcessState::kBackoff) {
      progress.trouble = process->name + " died: " + process->last_exit + "; it is tried again";
    }
  }
  for (const Process& process : job.processes()) {
    const bool leaves = process.role == group.role && process.model == group.model &&
                        process.fate != Fate::kRestart;
    if (leaves) {
      wait_for("finishing their requests", process.name);
    }
  }
  for (const auto& [what, names] : missing) {
    progress.missing += (progress.missing.empty() ? "" : ", ") + what + ": " + names_text(names);
  }
  if (progress.missing.empty() && progress.serving != group.wanted) {
    progress.missing = "the next step comes";
  }
  return progress;
}

}  // namespace pdjob::launcher
