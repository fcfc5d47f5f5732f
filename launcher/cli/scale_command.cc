#include "launcher/cli/scale_command.h"

#include <cstdio>

#include <poll.h>

#include "common/exit_code.h"
#include "common/json/json_fields.h"
#include "common/os/real_clock.h"
#include "common/result.h"
#include "launcher/look/job_order.h"
#include "launcher/look/plain_text.h"

namespace pdjob::launcher {

namespace {

constexpr int kPollMilliseconds = 100;

// What the launcher answers (job_scaling.h).
struct Answer {
  int64_t order = 0;
  bool settled = false;
  std::string trouble;
  std::string missing;
  std::string warning;
};

// Lines of progress: each change of a trouble, and what is missing now and then.
class Told {
 public:
  void tell(const Answer& answer, Instant now) {
    const std::string& line = answer.trouble.empty() ? answer.missing : answer.trouble;
    const bool due = !answer.trouble.empty() || now >= next_;
    if (line.empty() || line == last_ || !due) {
      return;
    }
    std::fprintf(stderr, "%s\n", plain_text(line).c_str());
    last_ = line;
    next_ = now + std::chrono::seconds(2);
  }
  const std::string& last() const { return last_; }

 private:
  std::string last_;
  Instant next_{};
};

Result<Answer> read_answer(const std::string& text) {
  JsonFields fields("the launcher's answer", text);
  Answer answer;
  int settled = 0;
  fields.take("order", answer.order);
  fields.take("settled", settled);
  fields.take("trouble", answer.trouble);
  fields.take("missing", answer.missing);
  fields.take("warning", answer.warning);
  PDJOB_TRY_STATUS(fields.status());
  answer.settled = settled == 1;
  return answer;
}

Status wait(const AskedProcess& admin, Answer answer, Duration timeout) {
  const int64_t order = answer.order;
  const Instant deadline = real_now() + timeout;
  Told told;
  while (!answer.settled) {
    told.tell(answer, real_now());
    if (real_now() >= deadline) {
      return Error{ErrorCode::kTimeout,
                   "the job has not got its size yet, and goes on by itself: " + told.last()};
    }
    poll(nullptr, 0, kPollMilliseconds);
    PDJOB_TRY(const std::string body, order_job(admin, {.target = "/scale"}));
    PDJOB_TRY(answer, read_answer(body));
    if (answer.order != order) {
      return Error{ErrorCode::kCancelled, "another order has changed the sizes: this one is over"};
    }
  }
  return ok();
}

Status scale(const AskedProcess& admin, const ScaleFlags& flags) {
  if (!flags.sizes.empty()) {
    std::string sizes;
    for (const std::string& size : flags.sizes) {
      sizes += (sizes.empty() ? "" : " ") + size;
    }
    PDJOB_TRY(const std::string body,
              order_job(admin, {.method = "POST", .target = "/scale", .body = sizes}));
    PDJOB_TRY(const Answer answer, read_answer(body));
    if (!answer.warning.empty()) {
      std::fprintf(stderr, "warning: %s\n", plain_text(answer.warning).c_str());
    }
    if (!flags.no_wait) {
      PDJOB_TRY_STATUS(wait(admin, answer, std::chrono::seconds(flags.timeout_s)));
    }
  }
  PDJOB_TRY(const std::string text, order_job(admin, {.target = "/scale?as=text"}));
  std::fputs(plain_text(text).c_str(), stdout);
  return ok();
}

}  // namespace

int scale_job(const std::string& state_dir, const std::string& job, const ScaleFlags& flags) {
  const auto admin = admin_of(state_dir, job);
  if (!admin) {
    std::fprintf(stderr, "pdjob scale: %s\n", plain_text(admin.error().message).c_str());
    return kExitFailed;
  }
  const Status scaled = scale(*admin, flags);
  if (scaled) {
    return kExitOk;
  }
  std::fprintf(stderr, "pdjob scale: %s\n", plain_text(scaled.error().message).c_str());
  return exit_code_of_order(scaled.error());
}

}  // namespace pdjob::launcher
