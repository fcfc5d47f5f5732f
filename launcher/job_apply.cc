#include "launcher/job_apply.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <utility>

#include "common/json/json_writer.h"
#include "launcher/job_start.h"
#include "net/control/message.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kTellAgain = std::chrono::milliseconds(500);

// Keys of workers that may change: each worker starts again with the new ones. Some of them change
// its fingerprint, so the new workers of a model exchange KV among themselves only.
constexpr std::array kWorkersOwn = {"engine.sequences",
                                    "engine.tokens_per_sequence",
                                    "engine.batch_tokens",
                                    "engine.threads",
                                    "engine.lend_threads",
                                    "engine.near",
                                    "engine.fake_delay_per_step",
                                    "engine.fake_delay_per_token",
                                    "engine.fake_crash_on_token",
                                    "engine.fake_hang_on_token",
                                    "kvtransfer.lease",
                                    "kvtransfer.connect_timeout",
                                    "changes_role",
                                    "drain_timeout",
                                    "start_timeout"};
constexpr std::array kMeaning = {"model",          "engine.kv_type", "engine.cpu",
                                 "engine.program", "engine.args",    "engine.env"};
constexpr std::string_view kRecipe = "engine.recipe.";
// Made of other keys, which are named.
constexpr std::string_view kFingerprint = "fingerprint";

bool is_one_of(const auto& keys, const std::string& path) {
  return std::ranges::find(keys, path) != keys.end();
}

// An external router cannot be told which workers belong together.
bool may_change_worker(const std::string& path, router::RouterKind kind) {
  const bool means = is_one_of(kMeaning, path) || path.starts_with(kRecipe);
  return path.starts_with("prefill.") || path.starts_with("decode.") ||
         is_one_of(kWorkersOwn, path) || (means && kind == router::RouterKind::kBuiltIn);
}

std::vector<std::string> paths_of(const std::vector<ConfigDifference>& keys) {
  std::vector<std::string> paths;
  std::ranges::transform(keys, std::back_inserter(paths), &ConfigDifference::path);
  return paths;
}

// The keys of routers that differ between two files, and that no router takes over while it runs.
std::vector<std::string> kept_by_routers(const JobSpecs& from, const JobSpecs& to) {
  const SpecKey key(net::Role::kRouter, "");
  const std::string& before = from.work.at(key);
  const std::string& after = to.work.at(key);
  const auto now = spec_values(key.first, with_live_keys(before, after));
  const auto then = spec_values(key.first, after);
  return now && then ? paths_of(differences(*now, *then)) : std::vector<std::string>();
}

std::string line_of(const std::string& of, const ConfigDifference& key) {
  const auto shown = [](const std::string& value) { return value.empty() ? "(default)" : value; };
  return "  " + (of == "launcher" ? "" : of + ": ") + key.path + ": " + shown(key.from) + " -> " +
         shown(key.to) + "\n";
}

Sizes sizes_in(const JobConfig& file) {
  Sizes sizes;
  for (const ModelConfig& model : file.models) {
    if (model.disaggregated()) {
      sizes[group_name(model, "prefill")] = model.prefill_workers;
    }
    sizes[group_name(model, "decode")] = model.decode_workers;
  }
  return sizes;
}

// The sizes that differ between two files, by group.
Sizes new_sizes(const JobConfig& from, const JobConfig& to) {
  const Sizes before = sizes_in(from);
  Sizes sizes = sizes_in(to);
  std::erase_if(sizes, [&](const auto& size) {
    const auto old = before.find(size.first);
    return old == before.end() || old->second == size.second;
  });
  return sizes;
}

}  // namespace

JobApply::JobApply(net::Loop& loop, JobRunner& runner, JobScaling& scaling, JobRun& run,
                   const JobConfig& config, Options options)
    : loop_(loop),
      runner_(runner),
      scaling_(scaling),
      run_(run),
      options_(std::move(options)),
      config_(config) {
  const JobLedger& ledger = run_.ledger();
  if (!run_.adopts() || !ledger.applies) {
    return;
  }
  // Another launcher began it. The file of this one decides whether it goes on or back.
  const bool back = specs_of(config_) == ledger.earlier_specs;
  const std::string& source = back ? ledger.config_source : ledger.earlier_source;
  const std::string& text = back ? ledger.config_text : ledger.earlier_text;
  if (auto other = parse_job_config(source, text, options_.places)) {
    before_ = *std::move(other);
    change_.emplace(back ? JobChange::Kind::kBack : JobChange::Kind::kForward,
                    specs_of(config_).digest(net::Role::kRouter, ""));
    changes_ = "an earlier launcher began this change\n";
    remember(*before_, true);
    if (back) {
      restored_ = new_sizes(*before_, config_);
    }
    job_changed();
  }
}

JobApply::~JobApply() { loop_.cancel(timer_); }

Result<JobConfig> JobApply::read(std::string_view file) const {
  const size_t line = file.find('\n');
  if (line == std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument, "send the file's path, a line break, and its text"};
  }
  PDJOB_TRY(JobConfig config,
            parse_job_config(std::string(file.substr(0, line)), std::string(file.substr(line + 1)),
                             options_.places));
  PDJOB_TRY_STATUS(check(specs_of(config)));
  config.launcher.state_dir = config_.launcher.state_dir;
  return config;
}

// Clients know the models by their names.
Status JobApply::check_names(const JobConfig& config) const {
  const std::vector<std::string> now = config_.served_names();
  const std::vector<std::string> then = config.served_names();
  if (now == then) {
    return ok();
  }
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? "" : ", ") + name;
    }
    return text;
  };
  return Error{ErrorCode::kInvalidArgument,
               "a running job keeps the names of its models; to serve another file under the same "
               "name, say that name:\n  served_name: " +
                   list(now) + " -> " + list(then) + "\n"};
}

Result<JobApply::Wish> JobApply::wish_of(const JobConfig& config) const {
  const JobSpecs before = specs_of(config_);
  const JobSpecs after = specs_of(config);
  if (const Status same = check_names(config); !same) {
    return same.error();
  }
  const std::vector<SpecChange> all = changes(before, after);
  const bool external = config_.router.kind == router::RouterKind::kCommand;
  const std::vector<std::string> kept_keys = kept_by_routers(before, after);
  const auto may_change = [&](const std::string& of, const std::string& path) {
    if (of == "launcher") {
      return std::ranges::any_of(
          std::array<std::string_view, 4>{"prefill.workers", "decode.workers", "prefill.spares",
                                          "decode.spares"},
          [&](std::string_view key) { return path.ends_with(key); });
    }
    return of == "router"
               ? !external && !is_one_of(kept_keys, path)
               : of != "batch" && of != "store" && may_change_worker(path, config_.router.kind);
  };
  std::string kept;
  std::string text;
  for (const SpecChange& change : all) {
    for (const ConfigDifference& key : change.keys) {
      if (key.path != kFingerprint) {
        (may_change(change.of, key.path) ? text : kept) += line_of(change.of, key);
      }
    }
  }
  if (config_.mode != Mode::kServe && !all.empty()) {
    kept += "  mode: only a job of mode serve changes while it runs\n";
  }
  if (!kept.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        "a running job keeps these; to change them, end it and start it with this file:\n" + kept};
  }
  PDJOB_TRY(LaunchPlan plan, options_.plan(config));
  return Wish{.config = config, .plan = std::move(plan), .changes = std::move(text)};
}

Result<std::string> JobApply::diff(std::string_view file) const {
  PDJOB_TRY(const JobConfig config, read(file));
  PDJOB_TRY(const Wish wish, wish_of(config));
  std::string text = wish.changes;
  const JobSpecs specs = specs_of(wish.config);
  for (const PlanGroup& group : wish.plan.groups) {
    std::string names;
    for (const Process& process : runner_.job().processes()) {
      if (process.role == group.role && process.model == group.model &&
          process.spec != specs.digest(group.role, group.model)) {
        names += (names.empty() ? "" : ", ") + process.name;
      }
    }
    if (!names.empty()) {
      text += "replaced one after the other: " + names + "\n";
    }
  }
  return text.empty() ? "nothing: the job is as this file says\n" : text;
}

Result<std::string> JobApply::order(std::string_view file) {
  PDJOB_TRY(const JobConfig config, read(file));
  PDJOB_TRY(Wish wish, wish_of(config));
  if (runner_.job().state() != JobState::kReady) {
    return Error{
        ErrorCode::kUnavailable,
        "the job is " + std::string(to_string(runner_.job().state())) + ", so it keeps its file"};
  }
  if (change_ && change_->state() == JobChange::State::kUnderWay) {
    return Error{ErrorCode::kUnavailable,
                 "another change is under way: `pdjob apply` again when it is over"};
  }
  ++orders_taken_;
  why_.clear();
  changes_ = wish.changes;
  if (!wish.changes.empty()) {
    scaling_.note("the job changes, by `pdjob apply`:\n" + wish.changes);
    before_ = config_;
    begin(std::move(wish), JobChange::Kind::kForward);
  }
  return json();
}

void JobApply::begin(Wish wish, JobChange::Kind kind) {
  config_ = std::move(wish.config);
  remember(*before_, true);
  const JobSpecs specs = specs_of(config_);
  runner_.set_specs(specs);
  change_.emplace(kind, specs.digest(net::Role::kRouter, ""));
  next_tell_ = {};
  // A size that the file does not change stays.
  Sizes sizes = new_sizes(*before_, config_);
  for (const JobGroup& group : runner_.job().groups()) {
    sizes.emplace(group.name, group.wanted);
  }
  scaling_.change(with_sizes(groups_of(config_, wish.plan), sizes));
  job_changed();
}

// The next launcher finds both files.
void JobApply::remember(const JobConfig& earlier, bool applies) {
  JobLedger& ledger = run_.ledger();
  ledger.config_source = std::filesystem::absolute(config_.source);
  ledger.config_text = config_.text;
  ledger.specs = specs_of(config_);
  ledger.applies = applies;
  ledger.earlier_source = applies ? std::filesystem::absolute(earlier.source).string() : "";
  ledger.earlier_text = applies ? earlier.text : "";
  ledger.earlier_specs = applies ? specs_of(earlier) : JobSpecs{};
  run_.save();
}

void JobApply::job_changed() {
  if (change_ && change_->state() == JobChange::State::kUnderWay) {
    loop_.cancel(std::exchange(timer_, {}));
    timer_ = loop_.call_at(loop_.now(), [this] { look(); });
  }
}

void JobApply::look() {
  timer_ = {};
  if (!restored_.empty()) {
    scaling_.change(with_sizes(runner_.job().groups(), std::exchange(restored_, {})));
  }
  change_->look(runner_.job(), loop_.now());
  switch (change_->state()) {
    case JobChange::State::kUnderWay:
      tell_routers();
      if (const Instant due = std::min(change_->due(), next_tell_); due != kNever) {
        timer_ = loop_.call_at(due, [this] { look(); });
      }
      return;
    case JobChange::State::kFailed:
      return go_back();
    case JobChange::State::kDone:
      remember(config_, false);
      before_.reset();
      scaling_.note(why_.empty() ? "the job is as its file says\n"
                                 : "the job is as before: " + why_ + "\n");
  }
}

// A message may be lost.
void JobApply::tell_routers() {
  const std::vector<const Process*> outdated = change_->outdated_routers(runner_.job());
  if (outdated.empty()) {
    next_tell_ = kNever;
    return;
  }
  if (next_tell_ != kNever && loop_.now() < next_tell_) {
    return;
  }
  const JobSpecs specs = specs_of(config_);
  const SpecKey key(net::Role::kRouter, "");
  for (const Process* router : outdated) {
    runner_.tell(router->name, net::SpecAsked{.digest = specs.digest(key.first, key.second),
                                              .work = specs.work.at(key)});
  }
  next_tell_ = loop_.now() + kTellAgain;
}

void JobApply::go_back() {
  why_ = change_->why();
  scaling_.note("the job goes back to its file before: " + why_ + "\n");
  JobConfig earlier = *std::exchange(before_, config_);
  auto plan = options_.plan(earlier);
  if (!plan) {
    scaling_.note("it cannot: " + plan.error().message + "\n");
    remember(config_, false);
    return;
  }
  begin({.config = std::move(earlier), .plan = *std::move(plan), .changes = ""},
        JobChange::Kind::kBack);
}

std::string JobApply::missing() const {
  std::string text = scaling_.missing();
  for (const Process* router : change_->outdated_routers(runner_.job())) {
    text += (text.empty() ? "" : "; ") + router->name + " has not taken its new settings";
  }
  return text;
}

std::string JobApply::json() const {
  const bool under_way = change_ && change_->state() == JobChange::State::kUnderWay;
  const bool back = change_ && change_->kind() == JobChange::Kind::kBack;
  const char* const state = under_way                      ? (back ? "going back" : "under way")
                            : !why_.empty()                ? "went back"
                            : orders_taken_ > 0 || change_ ? "done"
                                                           : "none";
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("order").integer(orders_taken_);
  json.key("state").string(state);
  json.key("why").string(why_);
  json.key("changes").string(changes_);
  json.key("missing").string(under_way ? missing() : "");
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
