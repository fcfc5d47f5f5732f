// Terminal: what the person (or script) who runs `pdjob --config` sees: the plan and progress on
// stderr, and on stdout one line `ready url=...`. On a terminal the progress is one line that
// changes; in a pipe it is a line per change. While it lives, this process's log lines go to a file
// instead of between them. Loop-bound.
#pragma once

#include <string>

#include "common/result.h"
#include "net/socket.h"

namespace pdjob::launcher {

class Terminal {
 public:
  // Points stderr, where the log writes, at `log`.
  static Result<Terminal> open(const net::Fd& log);
  Terminal(Terminal&&) noexcept = default;
  Terminal& operator=(Terminal&&) noexcept = default;
  ~Terminal();  // Gives stderr back.

  void say(const std::string& text);       // Whole lines.
  void progress(const std::string& line);  // Replaces the last progress line.
  void ready(const std::string& url);

 private:
  explicit Terminal(net::Fd person);

  net::Fd person_;  // The real stderr.
  bool is_terminal_ = false;
  std::string shown_;
};

}  // namespace pdjob::launcher
