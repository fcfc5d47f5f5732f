#include "launcher/job_scaling.h"

#include <map>
#include <optional>
#include <utility>

#include "common/json/json_writer.h"
#include "common/parse_number.h"

namespace pdjob::launcher {

namespace {

constexpr std::string_view kForm = "name sizes as GROUP=WORKERS, such as decode=2";

Result<std::map<std::string, uint32_t>> parse_sizes(std::string_view text) {
  std::map<std::string, uint32_t> sizes;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    const auto size = equals == std::string_view::npos
                          ? std::nullopt
                          : parse_number<uint32_t>(word.substr(equals + 1));
    if (!size || equals == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "'" + std::string(word) + "' is no size: " + std::string(kForm)};
    }
    if (!sizes.emplace(word.substr(0, equals), *size).second) {
      return Error{ErrorCode::kInvalidArgument,
                   std::string(word.substr(0, equals)) + " is named twice"};
    }
  }
  if (sizes.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::string(kForm)};
  }
  return sizes;
}

std::string group_text(const SizedGroup& group, const GroupProgress& progress) {
  return group.name + ": " + std::to_string(progress.serving) + " of " +
         std::to_string(progress.wanted) + (progress.wanted == 1 ? " serves" : " serve") +
         (progress.missing.empty() ? "" : "; " + progress.missing);
}

}  // namespace

GroupSizes sizes_of(const JobConfig& config, const LaunchPlan& plan) {
  std::vector<SizedGroup> groups;
  for (const PlanGroup& each : plan.groups) {
    groups.push_back({.name = each.group.name,
                      .role = each.role,
                      .model = each.model,
                      .demand = each.group.demand,
                      .wanted = each.group.workers});
  }
  // Several workers cannot share one KV port (job_config.cc).
  const bool one_kv_port = config.kvtransfer.listen_port != 0;
  return {std::move(groups),
          {.workers_per_group_max = kWorkersPerRoleMax,
           .workers_max = one_kv_port ? 1 : 2 * kWorkersPerRoleMax}};
}

JobScaling::JobScaling(net::Loop& loop, JobRunner& runner, GroupSizes sizes,
                       std::function<void(const std::string&)> say)
    : loop_(loop), runner_(runner), sizes_(std::move(sizes)), say_(std::move(say)) {}

JobScaling::~JobScaling() { loop_.cancel(next_); }

Result<std::string> JobScaling::order(std::string_view text) {
  PDJOB_TRY(const auto wanted, parse_sizes(text));
  const Job& job = runner_.job();
  if (job.state() != JobState::kReady) {
    return Error{ErrorCode::kUnavailable,
                 "the job is " + std::string(to_string(job.state())) + ", so its sizes stay"};
  }
  const std::vector<SizedGroup> before = sizes_.groups();
  PDJOB_TRY_STATUS(sizes_.set(wanted, job));
  ++orders_taken_;
  for (size_t i = 0; i < before.size(); ++i) {
    const SizedGroup& group = sizes_.groups()[i];
    if (group.wanted != before[i].wanted) {
      say_(group.name + ": from " + std::to_string(before[i].wanted) + " to " +
           std::to_string(group.wanted) + " workers, by `pdjob scale`\n");
    }
  }
  job_changed();
  return json();
}

void JobScaling::job_changed() {
  loop_.cancel(std::exchange(next_, {}));
  next_ = loop_.call_at(loop_.now(), [this] { carry_on(); });
}

void JobScaling::carry_on() {
  next_ = {};
  for (Event& order : sizes_.orders(runner_.job())) {
    runner_.submit(std::move(order));
  }
}

std::string JobScaling::text() const {
  std::string text;
  for (const SizedGroup& group : sizes_.groups()) {
    text += group_text(group, sizes_.progress(group, runner_.job())) + "\n";
  }
  return text;
}

std::string JobScaling::json() const {
  bool settled = true;
  std::string trouble;
  std::string missing;
  for (const SizedGroup& group : sizes_.groups()) {
    const GroupProgress progress = sizes_.progress(group, runner_.job());
    if (!progress.missing.empty()) {
      settled = false;
      missing += (missing.empty() ? "" : "; ") + group_text(group, progress);
    }
    trouble = trouble.empty() ? progress.trouble : trouble;
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("order").integer(orders_taken_);
  json.key("settled").integer(settled ? 1 : 0);
  json.key("trouble").string(trouble);
  json.key("missing").string(missing);
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
