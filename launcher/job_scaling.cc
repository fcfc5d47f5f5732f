#include "launcher/job_scaling.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/json/json_writer.h"
#include "common/metrics.h"
#include "common/parse_number.h"
#include "launcher/job_start.h"
#include "launcher/placement/crowding.h"

namespace pdjob::launcher {

namespace {

constexpr std::string_view kForm = "name sizes as GROUP=WORKERS, such as decode=2";
constexpr std::string_view kAuto = "auto";
constexpr Duration kTick = std::chrono::milliseconds(500);

// Empty: the worker has never given borrowing up.
std::string lending_text(const Process& process) {
  const net::WorkerLoad& load = process.load;
  if (load.lending_rests == 0) {
    return "";
  }
  return process.name +
         (load.lending_rests_now
              ? " computes with its own threads: borrowed ones do not pay beside other programs"
              : " borrows threads again") +
         " (given up " + std::to_string(load.lending_rests) + " times, " +
         std::to_string(load.borrowed_steps) + " steps with borrowed threads)\n";
}

struct SizeOrder {
  Sizes wanted;
  std::set<std::string> automatic;
};

Result<SizeOrder> parse_sizes(std::string_view text) {
  SizeOrder sizes;
  std::set<std::string_view> named;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    const auto size = parse_number<uint32_t>(value);
    if (name.empty() || (!size && value != kAuto)) {
      return Error{ErrorCode::kInvalidArgument,
                   "'" + std::string(word) + "' is no size: " + std::string(kForm)};
    }
    if (!named.insert(name).second) {
      return Error{ErrorCode::kInvalidArgument, std::string(name) + " is named twice"};
    }
    if (size) {
      sizes.wanted.emplace(name, *size);
    } else {
      sizes.automatic.emplace(name);
    }
  }
  if (named.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::string(kForm)};
  }
  return sizes;
}

GroupLimits limits_of(const JobConfig& config) {
  // Several workers cannot share one KV port (job_config.cc).
  const bool one_kv_port = config.kvtransfer.listen_port != 0;
  return {.workers_per_group_max = kWorkersPerRoleMax,
          .workers_max = one_kv_port ? 1 : 2 * kWorkersPerRoleMax};
}

std::vector<ScaledGroup> scaled_groups(const JobConfig& config, const LaunchPlan& plan) {
  std::vector<ScaledGroup> groups;
  for (const PlanGroup& each : plan.groups) {
    groups.push_back({.name = each.group.name,
                      .role = each.role,
                      .model = each.model,
                      .scaling = scaling_of(config, each.role, each.model),
                      .gpu_percent = each.group.demand.gpus * each.group.demand.parts *
                                     each.group.demand.gpu_percent});
  }
  return groups;
}

bool any_scales(const std::vector<ScaledGroup>& groups) {
  return std::ranges::any_of(groups, [](const ScaledGroup& each) { return each.scaling.on(); });
}

std::string group_text(const JobGroup& group, const GroupProgress& progress) {
  return group.name + ": " + std::to_string(progress.serving) + " of " +
         std::to_string(progress.wanted) + (progress.wanted == 1 ? " serves" : " serve") +
         (progress.spares == 0 ? "" : ", " + std::to_string(progress.spares) + " spare") +
         (progress.missing.empty() ? "" : "; " + progress.missing);
}

}  // namespace

JobScaling::JobScaling(net::Loop& loop, JobRunner& runner, const JobConfig& config,
                       const LaunchPlan& plan, std::function<void(const std::string&)> say,
                       ScalingMemory memory)
    : loop_(loop),
      runner_(runner),
      limits_(limits_of(config)),
      scales_(any_scales(scaled_groups(config, plan))),
      to_zero_(config.scaling.zero_after > Duration::zero()),
      autoscaler_(scaled_groups(config, plan), config.scaling),
      by_hand_(memory.record.by_hand.begin(), memory.record.by_hand.end()),
      notes_(memory.record.notes.begin(), memory.record.notes.end()),
      keep_(std::move(memory.keep)),
      say_(std::move(say)) {
  if (scales_) {
    tick_ = loop_.call_at(loop_.now() + kTick, [this] { tick(); });
  }
}

JobScaling::~JobScaling() { loop_.cancel(tick_); }

Result<std::string> JobScaling::order(std::string_view text) {
  PDJOB_TRY(const SizeOrder sizes, parse_sizes(text));
  const Job& job = runner_.job();
  if (job.state() != JobState::kReady) {
    return Error{ErrorCode::kUnavailable,
                 "the job is " + std::string(to_string(job.state())) + ", so its sizes stay"};
  }
  for (const std::string& name : sizes.automatic) {
    if (!autoscaler_.scales(name)) {
      return Error{ErrorCode::kInvalidArgument,
                   name + " has no `scaling.max` in the job file, so only a number sets its size"};
    }
  }
  const std::vector<JobGroup> before = groups();
  PDJOB_TRY(std::vector<JobGroup> after, resized(job, sizes.wanted, limits_));
  ++orders_taken_;
  for (const std::string& name : sizes.automatic) {
    if (by_hand_.erase(name) > 0) {
      note(name + ": scales by itself again, by `pdjob scale`\n");
    }
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (sizes.wanted.contains(before[i].name)) {
      by_hand_.insert(before[i].name);
    }
    if (after[i].wanted != before[i].wanted) {
      note(before[i].name + ": from " + std::to_string(before[i].wanted) + " to " +
           std::to_string(after[i].wanted) + " workers, by `pdjob scale`\n");
    }
  }
  keep_record();
  change(std::move(after));
  return json(crowding_by(before));
}

// What becomes of the nodes when all workers that come on top have their places. Workers that leave
// may make room, and nobody knows where.
std::string JobScaling::crowding_by(const std::vector<JobGroup>& before) const {
  const Placement* const placement = runner_.job().placement();
  std::vector<std::pair<Demand, uint64_t>> more;
  for (size_t i = 0; i < before.size(); ++i) {
    const JobGroup& group = groups()[i];
    if (group.wanted < before[i].wanted) {
      return "";
    }
    const uint64_t there = members_of(group, runner_.job()).size();
    more.emplace_back(group.demand, group.size() - std::min<uint64_t>(group.size(), there));
  }
  std::string text;
  for (const std::string& each :
       placement == nullptr ? std::vector<std::string>() : crowding_after(*placement, more)) {
    text += (text.empty() ? "" : "; ") + each;
  }
  return text;
}

void JobScaling::change(std::vector<JobGroup> groups) {
  for (const JobGroup& before : this->groups()) {
    const auto after = std::ranges::find(groups, before.name, &JobGroup::name);
    Changes& changes = changes_[before.name];
    changes.grown += after != groups.end() && after->wanted > before.wanted ? 1 : 0;
    changes.shrunk += after != groups.end() && after->wanted < before.wanted ? 1 : 0;
  }
  runner_.submit(GroupsChanged{std::move(groups)});
}

void JobScaling::tick() {
  tick_ = loop_.call_at(loop_.now() + kTick, [this] { tick(); });
  if (runner_.job().state() != JobState::kReady) {
    return;
  }
  Sizes wanted;
  for (const Decision& each : autoscaler_.step(observe(), loop_.now())) {
    const std::string& name = groups()[each.group].name;
    note(name + ": " +
         (each.from == each.to
              ? "stays at " + std::to_string(each.to)
              : "from " + std::to_string(each.from) + " to " + std::to_string(each.to)) +
         " workers: " + each.reason + "\n");
    if (each.from != each.to) {
      wanted[name] = each.to;
    }
  }
  if (!wanted.empty()) {
    change(with_sizes(groups(), wanted));
  }
}

Observation JobScaling::observe() const {
  const Job& job = runner_.job();
  Observation seen;
  for (const JobGroup& group : groups()) {
    GroupSample& sample = seen.groups.emplace_back();
    sample.wanted = group.wanted;
    sample.by_hand = by_hand_.contains(group.name);
    for (const Process* process : members_of(group, job)) {
      if (process->state == ProcessState::kReady && process->fate == Fate::kRestart &&
          process->load_told) {
        if (!process->spare) {
          sample.workers.push_back({process->engine_id, process->load});
        }
        continue;
      }
      waits(*process) ? ++sample.waiting : ++sample.coming;
      if (process->state == ProcessState::kWaiting) {
        sample.lack = job.lack(process->demand);
      }
    }
    if (group.spares > 0) {  // Of those that come, some will be spares.
      const uint32_t serving = static_cast<uint32_t>(sample.workers.size());
      const uint32_t missing = group.wanted - std::min(group.wanted, serving);
      sample.waiting = std::min(sample.waiting, missing);
      sample.coming = std::min(sample.coming, missing - sample.waiting);
    }
  }
  for (const Process& process : job.processes()) {
    if (process.is_router()) {
      seen.held += process.load.requests_queued;
      seen.alive += process.load.requests_queued + process.load.requests_running;
    }
    for (size_t i = 0; process.fate != Fate::kRestart && i < seen.groups.size(); ++i) {
      const JobGroup& group = groups()[i];
      seen.groups[i].leaving += group.role == process.role && group.model == process.model ? 1 : 0;
    }
  }
  return seen;
}

void JobScaling::note(const std::string& lines) {
  say_(lines);
  notes_.push_back({loop_.now(), lines.substr(0, Note::kTextBytesMax)});
  if (notes_.size() > ScalingRecord::kNotesMax) {
    notes_.pop_front();
  }
  keep_record();
}

void JobScaling::keep_record() {
  keep_({.notes = {notes_.begin(), notes_.end()}, .by_hand = {by_hand_.begin(), by_hand_.end()}});
}

int64_t JobScaling::seconds_since(const Note& note) const {
  return std::chrono::duration_cast<std::chrono::seconds>(loop_.now() - note.at).count();
}

std::string JobScaling::explain() const {
  std::string text;
  for (const Note& each : notes_) {
    text += std::to_string(seconds_since(each)) + " s ago  " + each.text;
  }
  if (text.empty()) {
    text = "nothing has been decided yet: the job has the sizes of its file\n";
  }
  for (const Process& process : runner_.job().processes()) {
    text += lending_text(process);
  }
  return text;
}

std::string JobScaling::explain_json() const {
  const auto line = [](const std::string& text) { return text.substr(0, text.rfind('\n')); };
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("decisions").begin_array();
  for (const Note& each : notes_) {
    json.begin_object();
    json.key("seconds_ago").integer(seconds_since(each));
    json.key("text").string(line(each.text));
    json.end_object();
  }
  json.end_array();
  json.key("lending").begin_array();
  for (const Process& process : runner_.job().processes()) {
    if (const std::string lending = lending_text(process); !lending.empty()) {
      json.string(line(lending));
    }
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

std::string JobScaling::text() const {
  std::string text;
  for (const JobGroup& group : groups()) {
    text +=
        group_text(group, progress_of(group, runner_.job())) +
        (by_hand_.contains(group.name) && autoscaler_.scales(group.name) ? "; set by hand" : "") +
        "\n";
  }
  return text;
}

std::string JobScaling::metrics() const {
  std::vector<GroupCounts> counts;
  for (const JobGroup& group : groups()) {
    const GroupProgress progress = progress_of(group, runner_.job());
    const auto found = changes_.find(group.name);
    const Changes changes = found == changes_.end() ? Changes{} : found->second;
    counts.push_back({.name = group.name,
                      .wanted = progress.wanted,
                      .serving = progress.serving,
                      .grown = changes.grown,
                      .shrunk = changes.shrunk});
  }
  return group_metrics(counts);
}

std::string group_metrics(const std::vector<GroupCounts>& groups) {
  Metrics metrics;
  for (const GroupCounts& group : groups) {
    metrics
        .gauge("pdjob_group_workers_wanted", "Workers that the group should have.",
               {{"group", group.name}})
        .set(group.wanted);
    metrics
        .gauge("pdjob_group_workers_serving", "Workers of the group that serve.",
               {{"group", group.name}})
        .set(group.serving);
    for (const auto& [direction, count] :
         {std::pair("up", group.grown), std::pair("down", group.shrunk)}) {
      metrics
          .counter("pdjob_scaling_decisions_total",
                   "Changes of the group's size, by the job itself or by `pdjob scale`.",
                   {{"group", group.name}, {"direction", direction}})
          .add(static_cast<double>(count));
    }
  }
  return metrics.text();
}

std::string JobScaling::missing() const {
  std::string missing;
  for (const JobGroup& group : groups()) {
    const GroupProgress progress = progress_of(group, runner_.job());
    if (!progress.missing.empty()) {
      missing += (missing.empty() ? "" : "; ") + group_text(group, progress);
    }
  }
  return missing;
}

std::string JobScaling::json(const std::string& warning) const {
  const std::string missing = this->missing();
  const bool settled = missing.empty();
  std::string trouble;
  for (const JobGroup& group : groups()) {
    trouble = trouble.empty() ? progress_of(group, runner_.job()).trouble : trouble;
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("order").integer(orders_taken_);
  json.key("settled").integer(settled ? 1 : 0);
  json.key("trouble").string(trouble);
  json.key("missing").string(missing);
  json.key("warning").string(warning);
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
