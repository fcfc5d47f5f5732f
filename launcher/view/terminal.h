// Terminal: what the person or script that runs `pdjob --config` sees. The plan and progress go to
// stderr; one line `ready url=...` goes to stdout. On a terminal one progress line changes in
// place; in a pipe each change is a line. Meanwhile, log lines of this process go to a file
// instead. Loop-bound.
#pragma once

#include <string>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

class Terminal {
 public:
  // Redirects stderr, where log lines go, to `log`.
  static Result<Terminal> open(const net::Fd& log);
  Terminal(Terminal&&) noexcept = default;
  Terminal& operator=(Terminal&&) noexcept = default;
  ~Terminal();  // Restores stderr.

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
