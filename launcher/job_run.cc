#include "launcher/job_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/exit_code.h"
#include "common/hex.h"
#include "common/log.h"
#include "common/os/real_clock.h"
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

JobLedger new_ledger(const JobConfig& config) {
  return {.build = build_version(),
          .root = RootKey::make().derive("root"),
          .nonce = new_nonce(),
          .config_source = std::filesystem::absolute(config.source),
          .config_text = config.text,
          .specs = specs_of(config),
          .plan_nodes = {},
          .job = {}};
}

}  // namespace

std::string JobRun::objection(const JobLedger& ledger, const JobConfig& config) {
  if (ledger.build != build_version()) {
    return "it was started by pdjob " + ledger.build + ", and this is " + build_version();
  }
  const JobSpecs specs = specs_of(config);
  if (ledger.applies && specs == ledger.earlier_specs) {
    return "";  // It goes back to the file before.
  }
  const std::string changed = changes_text(changes(ledger.specs, specs));
  return changed.empty()
             ? ""
             : "its job file was another one, or had other settings (--set): " + changed;
}

Result<std::unique_ptr<JobRun>> JobRun::begin(net::EventLoop& loop, JobFolder& folder,
                                              Terminal& terminal, const JobConfig& config,
                                              Stopped stopped) {
  const bool lasts = config.launcher.lasts();
  auto found = JobFolder::ledger(config.launcher.state_dir, config.name);
  bool ended = found ? found->stopping && stopped == Stopped::kIsOver
                     : found.error().code == ErrorCode::kNotFound;
  std::string why = ended ? "" : found ? objection(*found, config) : found.error().message;
  if (found && found->job.warm && stopped == Stopped::kIsOver) {
    const bool runs = LocalAgent::runs(folder.path());
    if (runs && !why.empty()) {
      terminal.say("the warm workers of the last job end, because " + why + "\n");
      LocalAgent::end(folder.path(), Duration{});
    }
    ended = ended || !runs || !why.empty();
    why.clear();
  }
  if (!why.empty() && LocalAgent::runs(folder.path())) {
    return Error{ErrorCode::kInvalidArgument,
                 "job " + config.name + " still runs without a launcher, and cannot be adopted: " +
                     why + ". End it by `pdjob stop --job " + config.name + "` first"};
  }
  const bool goes_on = !ended && why.empty();
  if (!goes_on) {
    LocalAgent::end(folder.path(), kLastOneEnds);  // It may be about to end.
  }
  JobLedger ledger = goes_on ? *std::move(found) : new_ledger(config);
  ledger.launcher = std::max(ledger.launcher, folder.last_launcher()) + 1;
  change_clock(ledger, Duration(unix_nanoseconds()) - loop.now().time_since_epoch(), loop.now());
  if (lasts) {
    // The number is on disk before anybody hears it.
    PDJOB_TRY_STATUS(folder.begin_lease(ledger.launcher, loop.now()));
    if (const Status saved = folder.save(ledger); !saved && !goes_on) {
      return saved.error();
    }
  }
  // From here on, its end is the end of the run.
  std::unique_ptr<JobRun> run(new JobRun(loop, folder, terminal, std::move(ledger), lasts));
  run->look_after_folder();
  return run;
}

JobRun::~JobRun() {
  loop_.cancel(folder_timer_);
  loop_.cancel(save_timer_);
  if (!left_) {
    folder_.forget_run(ledger_.launcher);
  }
}

void JobRun::leave_warm(const Job& job) {
  take(ledger_, job);
  ledger_.door_port = ledger_.batch_door_port = 0;
  ledger_.scaling = {};
  save();
  left_ = true;
}

bool JobRun::succeeded(const std::string& what, const Status& written, bool& told) const {
  if (!written && written.error().code == ErrorCode::kCancelled) {
    leave_all(terminal_, kExitFailed, written.error().message);
  }
  if (!written && !std::exchange(told, true)) {
    log::warn(what + ": " + written.error().message + "; it is tried again each second");
  } else if (written && std::exchange(told, false)) {
    log::info(what + ": it is on disk again");
  }
  return written.has_value();
}

void JobRun::look_after_folder() {
  if (!folder_.is_whole()) {
    make_folder_anew();
  }
  if (lasts_) {
    succeeded("the launcher's lease", folder_.renew_lease(ledger_.launcher, loop_.now()),
              lease_failed_);
    if (save_failed_) {
      save();
    }
    folder_.logs().bound();
  }
  folder_timer_ = loop_.call_at(loop_.now() + kLeaseRenewed, [this] { look_after_folder(); });
}

void JobRun::make_folder_anew() {
  const std::string gone = "the job's folder " + folder_.path() +
                           (folder_.is_there() ? " has lost files" : " was removed");
  const Status made = folder_.make_anew();
  if (made) {
    folder_gone_ = false;
    terminal_.say("pdjob: " + gone + ": it is made anew\n");
    saved_.clear();
    save();
  } else if (!std::exchange(folder_gone_, true)) {
    terminal_.say("pdjob: " + gone + ", and cannot be made anew: " + made.error().message +
                  ". No command finds the job until it can\n");
  }
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
  if (succeeded("the ledger, for the next launcher", folder_.save(ledger_), save_failed_)) {
    saved_ = std::move(bytes);
  }
}

void JobRun::note(const Job& job, const Event& event, const std::vector<Effect>& effects) {
  const LedgerDue due = lasts_ ? ledger_due(job, event, effects) : LedgerDue::kNever;
  if (due == LedgerDue::kBefore) {
    take(ledger_, job);
    save();
  } else if (due == LedgerDue::kSoon && !std::exchange(save_due_, true)) {
    save_timer_ = loop_.call_at(loop_.now() + kSavedWithin, [this, &job] {
      save_due_ = false;
      take(ledger_, job);
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
