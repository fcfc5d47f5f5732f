#include "launcher/scaling/group_sizes.h"

#include <algorithm>
#include <utility>

namespace pdjob::launcher {

namespace {

bool changes(const Process& process) { return process.fate == Fate::kChangeRole; }

std::string workers_text(uint32_t count) {
  return std::to_string(count) + (count == 1 ? " worker" : " workers");
}

Status check(const std::vector<JobGroup>& groups, const Sizes& wanted, const GroupLimits& limits) {
  for (const auto& [name, size] : wanted) {
    if (std::ranges::find(groups, name, &JobGroup::name) == groups.end()) {
      std::string why = "there is no group ";
      why.append(name).append(": this job has ");
      for (const JobGroup& group : groups) {
        why.append(&group == &groups.front() ? "" : ", ").append(group.name);
      }
      return Error{ErrorCode::kInvalidArgument, why};
    }
    if (size < 1 || size > limits.workers_per_group_max) {
      return Error{ErrorCode::kInvalidArgument, name + " can have 1 to " +
                                                    workers_text(limits.workers_per_group_max) +
                                                    ", not " + std::to_string(size)};
    }
  }
  return ok();
}

}  // namespace

std::vector<JobGroup> with_sizes(std::vector<JobGroup> groups, const Sizes& wanted) {
  for (JobGroup& group : groups) {
    const auto found = wanted.find(group.name);
    group.wanted = found == wanted.end() ? group.wanted : found->second;
  }
  return groups;
}

Result<std::vector<JobGroup>> resized(const Job& job, const Sizes& wanted,
                                      const GroupLimits& limits) {
  PDJOB_TRY_STATUS(check(job.groups(), wanted, limits));
  std::vector<JobGroup> groups = with_sizes(job.groups(), wanted);
  uint64_t workers = 0;
  bool shrinks = false;  // It makes room that nobody knows of yet.
  for (const JobGroup& group : groups) {
    shrinks = shrinks || group.size() < members_of(group, job).size();
    workers += group.size();
  }
  if (workers > limits.workers_max) {
    return Error{ErrorCode::kInvalidArgument, "all groups together can have at most " +
                                                  workers_text(limits.workers_max) + ", not " +
                                                  std::to_string(workers)};
  }
  for (const JobGroup& group : groups) {
    const uint64_t there = members_of(group, job).size();
    if (shrinks || !wanted.contains(group.name) || group.size() <= there) {
      continue;
    }
    const uint64_t more = group.size() - there;
    if (const uint64_t room = job.room(group.demand, more); room < more) {
      return Error{ErrorCode::kUnavailable,
                   workers_text(group.size()) + " for " + group.name + " do not fit: " +
                       (room > 0 ? "there is room for " + std::to_string(there + room)
                                 : job.lack(group.demand))};
    }
  }
  return groups;
}

GroupProgress progress_of(const JobGroup& group, const Job& job) {
  GroupProgress progress{.wanted = group.wanted};
  std::vector<std::pair<std::string, std::vector<std::string>>> missing;  // By what they do.
  const auto wait_for = [&missing](const std::string& what, const std::string& name) {
    const auto known = std::ranges::find(missing, what, [](const auto& one) { return one.first; });
    (known == missing.end() ? missing.emplace_back(what, std::vector<std::string>()) : *known)
        .second.push_back(name);
  };
  for (const Process* process : members_of(group, job)) {
    if (process->state == ProcessState::kReady && !changes(*process)) {
      ++(process->spare ? progress.spares : progress.serving);
      continue;
    }
    wait_for(!changes(*process)                    ? to_string(process->state)
             : process->next_role == process->role ? "starting again"
                                                   : "changing roles",
             process->name);
    if (process->state == ProcessState::kWaiting && !changes(*process)) {
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
  if (progress.missing.empty() &&
      (progress.serving != group.wanted || progress.serving + progress.spares != group.size())) {
    progress.missing = "the next step comes";
  }
  return progress;
}

}  // namespace pdjob::launcher
