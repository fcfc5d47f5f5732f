#include "launcher/ray/shim_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/config/shipped_files.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kUnsentBytesMax = 16 * kShimLineBytesMax;

constexpr ShippedFile kTexts[] = {
#include "launcher/ray/shipped_texts.inc"
};

// Runs the two texts that come on descriptors as one program, under their own names in tracebacks.
constexpr const char* kBootstrap =
    "import os,sys\n"
    "for at, name in (1, 'bundle.py'), (2, 'ray_shim.py'):\n"
    "  exec(compile(os.fdopen(int(sys.argv[at])).read(), name, 'exec'))";

Result<net::Fd> file_with(std::string_view text) {
  net::Fd file(memfd_create("pdjob-ray", MFD_CLOEXEC));
  for (size_t at = 0; file.valid() && at < text.size();) {
    const ssize_t put = write(file.get(), text.data() + at, text.size() - at);
    if (put <= 0) {
      return system_error("write the shim");
    }
    at += static_cast<size_t>(put);
  }
  if (!file.valid() || lseek(file.get(), 0, SEEK_SET) != 0) {
    return system_error("memfd_create");
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<ShimProcess>> ShimProcess::start(net::EventLoop& loop,
                                                        const ShimOptions& options,
                                                        Handler& handler) {
  PDJOB_TRY(const std::string python, net::find_program(options.python));
  std::vector<net::Fd> texts;
  for (const ShippedFile& shipped : kTexts) {
    PDJOB_TRY(net::Fd file, file_with(shipped.text));
    texts.push_back(std::move(file));
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("socketpair");
  }
  net::Fd ours(ends[0]);
  const net::Fd theirs(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  std::unique_ptr<ShimProcess> process(new ShimProcess(loop, std::move(ours), handler));
  net::ChildOptions child{.program = python,
                          .arguments = {python, "-c", kBootstrap},
                          .environment = options.environment,
                          .output = options.log};
  const auto pass = [&](int descriptor, const std::string& before = "") {
    child.arguments.push_back(before + std::to_string(descriptor));
    child.inherited.push_back(descriptor);
  };
  for (const net::Fd& text : texts) {
    pass(text.get());
  }
  pass(theirs.get());
  for (const OwnFile& file : options.files) {
    pass(file.file.get(), file.name + "=");
  }
  PDJOB_TRY(process->child_,
            net::ChildProcess::start(loop, child,
                                     [shim_process = process.get()](const net::ChildExit& exit) {
                                       // Its last lines may say why.
                                       const std::shared_ptr<bool> alive = shim_process->alive_;
                                       shim_process->read_more();
                                       if (*alive) {
                                         shim_process->end("the shim ended: " + exit.how);
                                       }
                                     }));
  PDJOB_TRY_STATUS(loop.watch(process->socket_.get(), EPOLLIN | EPOLLOUT | EPOLLET, *process));
  return process;
}

ShimProcess::~ShimProcess() {
  *alive_ = false;
  loop_.unwatch(socket_.get());
}

void ShimProcess::send(uint64_t id, const ShimRequest& request) {
  if (ended_) {
    return;
  }
  unsent_ += encode_request(id, request);
  unsent_ += '\n';
  write_more();
  if (unsent_.size() > kUnsentBytesMax) {
    loop_.post([this, alive = alive_] {
      if (*alive) {
        end("the shim does not read");
      }
    });
  }
}

void ShimProcess::kill() {
  ended_ = true;
  child_->signal(SIGKILL);
}

void ShimProcess::wait(Duration at_most) {
  write_more();
  pollfd one{.fd = socket_.get(), .events = POLLIN};
  if (!unsent_.empty()) {
    one.events |= POLLOUT;
  }
  poll(&one, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count()));
  const std::shared_ptr<bool> alive = alive_;
  if (!read_more() && *alive) {
    end("the shim ended");
  }
}

void ShimProcess::on_ready(uint32_t /*epoll_events*/) {
  write_more();
  read_more();  // At its end, its exit says why.
}

void ShimProcess::write_more() {
  while (!unsent_.empty()) {
    const ssize_t put = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (put <= 0) {
      return;  // Retried when the socket is writable; or the shim has ended.
    }
    unsent_.erase(0, static_cast<size_t>(put));
  }
}

bool ShimProcess::read_more() {
  std::array<char, size_t{64} * 1024> buffer;
  while (!ended_) {
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) {
      return got < 0;
    }
    received_.append(buffer.data(), static_cast<size_t>(got));
    if (!take_lines()) {
      return true;
    }
  }
  return true;
}

bool ShimProcess::take_lines() {
  const std::shared_ptr<bool> alive = alive_;
  size_t from = 0;
  for (size_t end = 0; !ended_ && (end = received_.find('\n', from)) != std::string::npos;
       from = end + 1) {
    const Result<ShimLine> line =
        decode_shim_line(std::string_view(received_).substr(from, end - from));
    if (!line) {
      this->end(line.error().message);
      return false;
    }
    handler_.on_shim_line(*line);
    if (!*alive || ended_) {
      return false;
    }
  }
  received_.erase(0, from);
  if (received_.size() > kShimLineBytesMax) {
    end("the shim's line is too long");
    return false;
  }
  return true;
}

void ShimProcess::end(const std::string& why) {
  if (!ended_) {
    ended_ = true;
    handler_.on_shim_gone(why);
  }
}

}  // namespace pdjob::launcher
