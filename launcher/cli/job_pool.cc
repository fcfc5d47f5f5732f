#include "launcher/cli/job_pool.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace pdjob::launcher {
namespace {

constexpr size_t kOutputKept = 4096;
constexpr std::string_view kReady = "ready url=";

}  // namespace

JobPool::JobPool(net::EventLoop& loop, std::string config_path, std::string original,
                 std::vector<std::string> settings, std::string key, Duration row_timeout)
    : loop_(loop),
      config_path_(std::move(config_path)),
      original_(std::move(original)),
      settings_(std::move(settings)),
      key_(std::move(key)),
      row_timeout_(row_timeout) {}

JobPool::~JobPool() {
  if (output_.valid()) {
    loop_.unwatch(output_.get());
  }
}

void JobPool::start(std::function<void(Result<batch::RowServer>)> ready,
                    std::function<void(std::string)> died) {
  ready_ = std::move(ready);
  died_ = std::move(died);
  if (const Status spawned = spawn(); !spawned) {
    loop_.post([ready = std::exchange(ready_, nullptr), error = spawned.error()] { ready(error); });
  }
}

Status JobPool::spawn() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("pipe");
  }
  output_ = net::Fd(ends[0]);
  const net::Fd theirs(ends[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  PDJOB_TRY_STATUS(loop_.watch(output_.get(), EPOLLIN | EPOLLET, *this));
  std::vector<std::string> arguments = {"pdjob", "batch-job", config_path_};
  for (const std::string& setting : settings_) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  if (!original_.empty()) {
    arguments.insert(arguments.end(), {"--original", original_});
  }
  PDJOB_TRY(child_, net::ChildProcess::start(loop_,
                                             {.program = "/proc/self/exe",
                                              .arguments = std::move(arguments),
                                              .output = theirs.get()},
                                             [this](const net::ChildExit& exit) { exited(exit); }));
  return ok();
}

void JobPool::stop(std::function<void()> stopped) {
  stopped_ = std::move(stopped);
  if (child_ == nullptr) {
    loop_.post(std::exchange(stopped_, nullptr));
  } else {
    child_->signal(SIGTERM);
  }
}

void JobPool::on_ready(uint32_t /*epoll_events*/) {
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = ::read(output_.get(), buffer.data(), buffer.size())) > 0) {
    text_.append(buffer.data(), static_cast<size_t>(got));
    take_lines();
  }
}

void JobPool::take_lines() {
  const size_t at = text_.find(kReady);
  const size_t end = at == std::string::npos ? at : text_.find('\n', at);
  if (end != std::string::npos && ready_ != nullptr) {
    auto server =
        batch::parse_row_server(text_.substr(at + kReady.size(), end - at - kReady.size()));
    if (server) {
      server->key = key_;
      server->row_timeout = row_timeout_;
    }
    std::exchange(ready_, nullptr)(server);
  }
  if (text_.size() > 2 * kOutputKept) {
    text_.erase(0, text_.size() - kOutputKept);
  }
}

void JobPool::exited(const net::ChildExit& exit) {
  on_ready(0);
  child_.reset();
  const bool stopped = exit.signal == 0 && exit.code == 0;
  const Error error{ErrorCode::kUnavailable,
                    (stopped ? "the job was stopped; the same command goes on later\n"
                             : "the job ended with " + exit.how + "\n") +
                        text_.substr(text_.size() > kOutputKept ? text_.size() - kOutputKept : 0)};
  if (stopped_ != nullptr) {
    std::exchange(stopped_, nullptr)();
  } else if (ready_ != nullptr) {
    std::exchange(ready_, nullptr)(error);
  } else {
    died_(error.message);
  }
}

}  // namespace pdjob::launcher
