// GrammarProcess: compiles grammars, one at a time, in a child process that may crash, hang or lie
// (grammar_helper.h). The first grammar starts the child; a grammar after its death restarts it.
// Loop-bound.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/limits.h"
#include "common/result.h"
#include "common/time.h"
#include "engine/grammar/grammar_compiler.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::worker {

struct GrammarProgram {
  std::string path = "/proc/self/exe";
  // Two descriptor numbers follow them: channel, vocabulary.
  std::vector<std::string> arguments = {"pdjob", "compile-grammar"};
  Duration deadline = limits::kGrammarHelperWaitMax;  // Per grammar.
};

struct GrammarJob {
  engine::StructureKind kind{};
  std::string checked;  // The result of check_structure().
  std::string digest;   // Its name in logs.
  bool tried = false;   // A child died at it.
  // Called with the compiled text, or with an error. If the grammar was refused, or ended
  // two children: kInvalidArgument. If the deadline passed, or children were killed: kOverloaded.
  // If the child cannot be started: kInternal.
  std::function<void(Result<std::string>)> then;
};

class GrammarProcess final : net::FdHandler {
 public:
  GrammarProcess(net::EventLoop& loop, GrammarProgram program, const engine::TokenPieces& pieces);
  ~GrammarProcess();
  GrammarProcess(const GrammarProcess&) = delete;
  GrammarProcess& operator=(const GrammarProcess&) = delete;

  // The caller bounds how many jobs wait.
  void submit(GrammarJob job);

 private:
  void on_ready(uint32_t epoll_events) override;
  void advance();
  Status start();
  void send_job();
  void write_more();
  bool read_more();
  void take_frames();
  void take_frame(char word, std::string text);
  void on_exit(const net::ChildExit& exit);
  void distrust(const std::string& how);
  void retry(const std::string& how, bool tried);
  // Ends the child if it still runs, and fails its current job with `error`.
  void lose_child(const std::string& how, Error error);
  void forget_child();
  void end_job();
  void answer(Result<std::string> result);

  net::EventLoop& loop_;
  const GrammarProgram program_;
  net::Fd vocabulary_;  // A sealed memfd.
  std::unique_ptr<net::ChildProcess> child_;
  net::Fd channel_;
  bool ready_ = false;  // The child has sent kReady.
  bool has_answered_ = false;
  bool running_ = false;   // The child has the first of jobs_.
  uint64_t children_ = 0;  // Started so far.
  uint64_t begun_ = 0;     // Jobs that a child was to do, so far.
  std::optional<net::TimerId> deadline_;
  std::deque<GrammarJob> jobs_;
  std::string unsent_;
  std::string received_;
};

}  // namespace pdjob::worker
