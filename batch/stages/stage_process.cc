#include "batch/stages/stage_process.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdjob::batch {
namespace {

constexpr int64_t kLogBytesMax = int64_t{16} << 20;  // Beyond: the next process begins a new log.
constexpr size_t kLastWordsMax = 400;

struct Pipe {
  net::Fd read;
  net::Fd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return system_error("pipe");
  }
  return Pipe{net::Fd(ends[0]), net::Fd(ends[1])};
}

int64_t size_of(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 ? static_cast<int64_t>(found.st_size) : 0;
}

Result<net::Fd> open_log(const std::string& path) {
  if (size_of(path) > kLogBytesMax) {
    std::rename(path.c_str(), (path + ".old").c_str());
  }
  net::Fd log(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) {
    return system_error("cannot write " + path);
  }
  return log;
}

}  // namespace

Result<std::unique_ptr<StageProcess>> StageProcess::start(net::EventLoop& loop, StageRun run,
                                                          const StageProcessOptions& options,
                                                          Handler& handler) {
  PDJOB_TRY(Pipe input, make_pipe());
  PDJOB_TRY(Pipe output, make_pipe());
  PDJOB_TRY(const net::Fd log, open_log(options.log));
  for (const int ours : {input.write.get(), output.read.get()}) {
    fcntl(ours, F_SETFL, O_NONBLOCK);
  }
  std::unique_ptr<StageProcess> process(
      new StageProcess(loop, run, std::move(input.write), std::move(output.read), handler));
  process->log_ = options.log;
  process->log_begin_ = size_of(options.log);
  PDJOB_TRY(process->child_,
            net::ChildProcess::start(loop,
                                     {.program = options.command.front(),
                                      .arguments = options.command,
                                      .environment = options.environment,
                                      .input = input.read.get(),
                                      .output = output.write.get(),
                                      .errors = log.get(),
                                      .folder = options.folder},
                                     [stage_process = process.get()](const net::ChildExit& exit) {
                                       // Its last lines may be answers.
                                       if (stage_process->read_more()) {
                                         stage_process->end(exit.how + stage_process->last_words());
                                       }
                                     }));
  PDJOB_TRY_STATUS(loop.watch(process->input_.get(), EPOLLOUT | EPOLLET, *process));
  PDJOB_TRY_STATUS(loop.watch(process->output_.get(), EPOLLIN | EPOLLET, *process));
  return process;
}

StageProcess::~StageProcess() {
  *alive_ = false;
  if (input_.valid()) {
    loop_.unwatch(input_.get());
  }
  loop_.unwatch(output_.get());
}

void StageProcess::send(std::string_view line) {
  unsent_.append(line).append("\n");
  write_more();
}

void StageProcess::finish() {
  finishing_ = true;
  write_more();
}

void StageProcess::on_ready(uint32_t /*epoll_events*/) {
  write_more();
  read_more();  // At its end, its exit says why.
}

void StageProcess::write_more() {
  while (input_.valid() && sent_ < unsent_.size()) {
    const ssize_t put = ::write(input_.get(), unsent_.data() + sent_, unsent_.size() - sent_);
    if (put <= 0) {
      return;  // Retried when the pipe is writable; or the process has ended.
    }
    sent_ += static_cast<size_t>(put);
  }
  unsent_.clear();
  sent_ = 0;
  if (finishing_ && input_.valid()) {
    loop_.unwatch(input_.get());
    input_.reset();
  }
}

bool StageProcess::read_more() {
  std::array<char, size_t{64} * 1024> buffer;
  while (!ended_) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      return true;
    }
    received_.append(buffer.data(), static_cast<size_t>(got));
    if (!take_lines()) {
      return false;
    }
  }
  return true;
}

bool StageProcess::take_lines() {
  const std::shared_ptr<bool> alive = alive_;
  size_t from = 0;
  for (size_t at = 0; (at = received_.find('\n', searched_)) != std::string::npos; from = at + 1) {
    searched_ = at + 1;
    handler_.on_stage_line(run_, received_.substr(from, at - from));
    if (!*alive || ended_) {
      return false;
    }
  }
  received_.erase(0, from);
  searched_ = received_.size();
  if (received_.size() > kLineBytesMax) {
    end("it wrote a line of more than " + std::to_string(kLineBytesMax) + " bytes");
    return false;
  }
  return true;
}

void StageProcess::end(const std::string& how) {
  if (!ended_) {
    ended_ = true;
    handler_.on_stage_end(run_, how);
  }
}

std::string StageProcess::last_words() const {
  const int64_t begin = std::max(log_begin_, size_of(log_) - static_cast<int64_t>(kLastWordsMax));
  const net::Fd file(open(log_.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kLastWordsMax, '\0');
  const ssize_t got = file.valid() ? pread(file.get(), text.data(), text.size(), begin) : 0;
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  // The last two lines that are not empty.
  text.erase(text.find_last_not_of(" \r\n") + 1);
  if (const size_t last = text.rfind('\n'); last != std::string::npos && last > 0) {
    const size_t before = text.rfind('\n', last - 1);
    text.erase(0, before == std::string::npos ? 0 : before + 1);
  }
  for (char& c : text) {
    c = c == '\n' || c == '\r' ? ' ' : c;
  }
  return text.empty() ? "" : ": " + text;
}

}  // namespace pdjob::batch
