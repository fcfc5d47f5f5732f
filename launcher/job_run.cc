#include "launcher/job_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <variant>

#include "common/exit_code.h"
#include "common/hex.h"
#include "common/log.h"
#include "common/random.h"
#include "launcher/agents/build_version.h"
#include "launcher/run/local_agent.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kLeaseRenewed = std::chrono::seconds(1);
constexpr Duration kSavedWithin = std::chrono::milliseconds(20);
constexpr Duration kLastOneEnds = std::chrono::seconds(3);

std::string new_nonce() {
  constexpr size_t kDigits = 8;
  std::string text;
  append_hex(text, entropy(), kDigits);
  return text;
}

Ledger new_ledger(const JobConfig& config) {
  return {.build = build_version(),
          .root = RootKey::make().derive("root"),
          .nonce = new_nonce(),
          .config_source = std::filesystem::absolute(config.source),
          .config_text = config.text,
          .plan_nodes = {},
          .job = {}};
}

bool is_heartbeat(const Event& event) {
  const auto* arrived = std::get_if<MessageArrived>(&event);
  return arrived != nullptr && std::holds_alternative<net::HeartbeatSent>(arrived->message);
}

}  // namespace

std::string JobRun::objection(const Ledger& ledger, const JobConfig& config) {
  if (ledger.build != build_version()) {
    return "it was started by pdjob " + ledger.build + ", and this is " + build_version();
  }
  return ledger.config_text == config.text ? "" : "its job file was another one";
}

Result<std::unique_ptr<JobRun>> JobRun::begin(net::EventLoop& loop, JobFolder& folder,
                                              Terminal& terminal, const JobConfig& config,
                                              Stopped stopped) {
  const bool lasts = config.launcher.orphan_timeout > Duration::zero();
  auto found = JobFolder::ledger(config.launcher.state_dir, config.name);
  const bool ended = found ? found->stopping && stopped == Stopped::kIsOver
                           : found.error().code == ErrorCode::kNotFound;
  const std::string why = ended ? "" : found ? objection(*found, config) : found.error().message;
  if (!why.empty() && LocalAgent::runs(folder.path())) {
    return Error{ErrorCode::kInvalidArgument,
                 "job " + config.name + " still runs without a launcher, and cannot be adopted: " +
                     why + ". End it by `pdjob stop --job " + config.name + "` first"};
  }
  const bool goes_on = !ended && why.empty();
  if (!goes_on) {
    LocalAgent::end(folder.path(), kLastOneEnds);  // It may be about to end.
  }
  std::unique_ptr<JobRun> run(
      new JobRun(loop, folder, terminal, goes_on ? *std::move(found) : new_ledger(config), lasts));
  ++run->ledger_.launcher;
  if (lasts) {
    // The number is on disk before anybody hears it.
    PDJOB_TRY_STATUS(folder.save(run->ledger_));
    PDJOB_TRY_STATUS(folder.renew_lease(run->ledger_.launcher, loop.now()));
    run->renew_lease();
  }
  return run;
}

JobRun::~JobRun() {
  loop_.cancel(lease_timer_);
  loop_.cancel(save_timer_);
  folder_.forget_run();
}

void JobRun::renew_lease() {
  const Status renewed = folder_.renew_lease(ledger_.launcher, loop_.now());
  if (!renewed && renewed.error().code == ErrorCode::kCancelled) {
    leave_all(terminal_, kExitFailed, renewed.error().message);
  }
  if (!renewed) {
    log::warn("the launcher's lease: " + renewed.error().message);
  }
  lease_timer_ = loop_.call_at(loop_.now() + kLeaseRenewed, [this] { renew_lease(); });
}

// A job that serves is worth more than its ledger: a full disk does not stop it.
void JobRun::save() {
  if (!lasts_) {
    return;
  }
  std::string bytes = encode(ledger_);
  if (bytes == saved_) {
    return;
  }
  if (const Status saved = folder_.save(ledger_); !saved) {
    log::warn("another launcher could not go on with this job: " + saved.error().message);
    return;
  }
  saved_ = std::move(bytes);
}

void JobRun::take(const Job& job) {
  ledger_.job = job.record();
  ledger_.planned = true;
  ledger_.stopping = job.state() == JobState::kDraining || job.state() == JobState::kDone;
}

void JobRun::note(const Job& job, const Event& event, const std::vector<Effect>& effects) {
  if (!lasts_ || is_heartbeat(event)) {
    return;
  }
  const bool starts = std::ranges::any_of(
      effects, [](const Effect& effect) { return std::holds_alternative<Spawn>(effect); });
  if (starts || job.state() == JobState::kDraining) {
    take(job);
    save();
  } else if (!std::exchange(save_due_, true)) {
    save_timer_ = loop_.call_at(loop_.now() + kSavedWithin, [this, &job] {
      save_due_ = false;
      take(job);
      save();
    });
  }
}

void leave_all(Terminal& terminal, int exit_code, const std::string& why) {
  terminal.say("pdjob: " + why + "\n");
  log::warn("this launcher ends, and leaves everything as it is");
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace pdjob::launcher
