#include "launcher/cli/apply_command.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <poll.h>

#include "common/exit_code.h"
#include "common/json/json_fields.h"
#include "common/os/real_clock.h"
#include "common/result.h"
#include "launcher/look/job_order.h"
#include "launcher/look/plain_text.h"

namespace pdjob::launcher {

namespace {

constexpr int kLookMilliseconds = 200;

// The launcher's answer (job_apply.h).
struct ChangeAnswer {
  int64_t order = 0;
  std::string state;
  std::string why;
  std::string changes;
  std::string missing;

  bool under_way() const { return state == "under way" || state == "going back"; }
};

Result<ChangeAnswer> read_change(const std::string& text) {
  JsonFields fields("the launcher's answer", text);
  ChangeAnswer answer;
  fields.take("order", answer.order);
  fields.take("state", answer.state);
  fields.take("why", answer.why);
  fields.take("changes", answer.changes);
  fields.take("missing", answer.missing);
  PDJOB_TRY_STATUS(fields.status());
  return answer;
}

// Lines of what is missing go to standard error, each once.
Status wait_for_change(const AskedProcess& admin, ChangeAnswer& answer, Duration timeout) {
  const int64_t order = answer.order;
  const Instant deadline = real_now() + timeout;
  std::string told;
  while (answer.under_way()) {
    const std::string line = answer.state + (answer.missing.empty() ? "" : ": " + answer.missing);
    if (line != told) {
      std::fprintf(stderr, "%s\n", plain_text(line).c_str());
      told = line;
    }
    if (real_now() >= deadline) {
      return Error{ErrorCode::kTimeout, "the change is not done yet, and goes on by itself"};
    }
    poll(nullptr, 0, kLookMilliseconds);
    PDJOB_TRY(const std::string body, order_job(admin, {.target = "/apply"}));
    PDJOB_TRY(answer, read_change(body));
    if (answer.order != order) {
      return Error{ErrorCode::kCancelled, "another change has come after this one"};
    }
  }
  return ok();
}

Status apply_file(const AskedProcess& admin, const std::string& file, const ApplyFlags& flags) {
  if (flags.dry_run) {
    PDJOB_TRY(const std::string text,
              order_job(admin, {.method = "POST", .target = "/diff", .body = file}));
    std::fputs(plain_text(text).c_str(), stdout);
    return ok();
  }
  PDJOB_TRY(const std::string body,
            order_job(admin, {.method = "POST", .target = "/apply", .body = file}));
  PDJOB_TRY(ChangeAnswer answer, read_change(body));
  if (answer.changes.empty()) {
    std::puts("nothing to change: the job is as this file says");
    return ok();
  }
  std::fputs(plain_text(answer.changes).c_str(), stdout);
  if (flags.no_wait) {
    return ok();
  }
  PDJOB_TRY_STATUS(wait_for_change(admin, answer, std::chrono::seconds(flags.timeout_s)));
  if (!answer.why.empty()) {
    return Error{ErrorCode::kInternal, "the job went back to its file before: " + answer.why +
                                           "; `pdjob logs` of that process may say more"};
  }
  std::puts("done");
  return ok();
}

}  // namespace

int apply_to_job(const JobConfig& config, const ApplyFlags& flags) {
  const auto admin = admin_of(config.launcher.state_dir, config.name);
  const Status applied =
      admin ? apply_file(*admin,
                         std::filesystem::absolute(config.source).string() + "\n" + config.text,
                         flags)
            : Status(admin.error());
  if (applied) {
    return kExitOk;
  }
  std::fprintf(stderr, "pdjob %s: %s\n", flags.dry_run ? "diff" : "apply",
               plain_text(applied.error().message).c_str());
  return exit_code_of_order(applied.error());
}

}  // namespace pdjob::launcher
