#include "launcher/view/terminal.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace pdjob::launcher {

namespace {

constexpr const char* kEraseLine = "\r\x1b[K";

size_t columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// Drops text that cannot be written; a closed stderr is no reason to stop serving.
void write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0 && errno != EINTR) {
      return;
    }
    text.remove_prefix(written > 0 ? static_cast<size_t>(written) : 0);
  }
}

}  // namespace

Result<Terminal> Terminal::open(const net::Fd& log) {
  net::Fd person(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!person.valid() || dup2(log.get(), STDERR_FILENO) < 0) {
    return system_error("cannot write to the launcher's log");
  }
  return Terminal(std::move(person));
}

Terminal::Terminal(net::Fd person)
    : person_(std::move(person)), is_terminal_(isatty(person_.get()) == 1) {}

Terminal::~Terminal() {
  if (person_.valid()) {
    dup2(person_.get(), STDERR_FILENO);
  }
}

void Terminal::say(const std::string& text) {
  // Overwrites the progress line, or the ^C that the terminal has echoed.
  write_whole(person_.get(), (is_terminal_ ? kEraseLine : "") + text);
  shown_.clear();
}

void Terminal::progress(const std::string& line) {
  if (line == shown_) {
    return;
  }
  if (is_terminal_) {
    write_whole(person_.get(), kEraseLine + line.substr(0, columns_of(person_.get()) - 1));
  } else {
    write_whole(person_.get(), line + "\n");
  }
  shown_ = line;
}

void Terminal::ready(const std::string& url) {
  say("");
  write_whole(STDOUT_FILENO, "ready url=" + url + "\n");
}

}  // namespace pdjob::launcher
