#include "launcher/look/logs_command.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include <poll.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/parse_number.h"
#include "common/result.h"
#include "launcher/clusters/log_folder.h"
#include "launcher/job_folder.h"
#include "launcher/look/ask.h"
#include "launcher/look/plain_text.h"

namespace pdjob::launcher {

namespace {

constexpr int kFollowMilliseconds = 300;
constexpr int kLooksForEndMax = 20;

struct Piece {
  uint64_t from = 0;
  std::string text;
};

Result<Piece> ask_piece(const AskedProcess& admin, const std::string& process,
                        std::optional<uint64_t> from) {
  const std::string target =
      "/logs?process=" + process + (from ? "&from=" + std::to_string(*from) : "");
  PDJOB_TRY(std::string body, ask_all({admin}, target).front());
  const size_t line = body.find('\n');
  const auto number = parse_number<uint64_t>(std::string_view(body).substr(0, line));
  if (line == std::string::npos || !number) {
    return Error{ErrorCode::kCorrupt, "the launcher's answer is no piece of a log"};
  }
  return Piece{*number, body.substr(line + 1)};
}

// A launcher that ends closes its port first, and leaves the job's folder last.
bool ends_soon(const std::string& state_dir, const std::string& job) {
  int looks = 0;
  while (JobFolder::find(state_dir, job)) {
    if (++looks == kLooksForEndMax) {
      return false;
    }
    poll(nullptr, 0, kFollowMilliseconds);
  }
  return true;
}

Status print_log(const std::string& state_dir, const std::string& job, const std::string& process,
                 LogsMode mode) {
  if (!is_process_name(process)) {
    return Error{ErrorCode::kInvalidArgument, process + " is no name of a process"};
  }
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress address, net::parse_http_address(launcher.admin));
  const AskedProcess admin{address, launcher.key};
  const bool to_terminal = isatty(1) == 1;
  std::optional<uint64_t> from;
  if (mode == LogsMode::kWhole) {
    from = 0;
  }
  for (;;) {
    const auto piece = ask_piece(admin, process, from);
    if (!piece) {
      const bool over = mode == LogsMode::kFollow && from && ends_soon(state_dir, job);
      return over ? ok() : Status(piece.error());
    }
    const std::string text = to_terminal ? plain_text(piece->text) : piece->text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    from = piece->from + piece->text.size();
    if (std::fflush(stdout) != 0 || (piece->text.empty() && mode == LogsMode::kWhole)) {
      return ok();
    }
    if (piece->text.empty()) {
      poll(nullptr, 0, kFollowMilliseconds);
      if (!JobFolder::find(state_dir, job)) {
        return ok();  // The job has ended.
      }
    }
  }
}

}  // namespace

int show_log(const std::string& state_dir, const std::string& job, const std::string& process,
             LogsMode mode) {
  const Status shown = print_log(state_dir, job, process, mode);
  if (!shown) {
    std::fprintf(stderr, "pdjob: %s\n", shown.error().message.c_str());
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace pdjob::launcher
