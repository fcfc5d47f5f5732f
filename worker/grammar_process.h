// GrammarProcess: has grammars compiled, one after the other, in a child process that may crash,
// hang or lie (grammar_helper.h). The child is started with the first grammar, and again after each
// death. Loop-bound.
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
#include "net/child_process.h"
#include "net/event_loop.h"
#include "net/socket.h"

namespace pdjob::worker {

struct GrammarProgram {
  std::string path = "/proc/self/exe";
  // Before the two numbers of descriptors: channel, vocabulary.
  std::vector<std::string> arguments = {"pdjob", "compile-grammar"};
  Duration deadline = limits::kGrammarHelperWaitMax;  // Of one grammar.
};

struct GrammarJob {
  engine::StructureKind kind{};
  std::string checked;  // By check_structure().
  std::string digest;   // What logs call it.
  // The compiled text. kInvalidArgument: refused, or it ended the child; kOverloaded: no answer
  // within the deadline; kInternal: no child can be started.
  std::function<void(Result<std::string>)> then;
};

class GrammarProcess final : net::FdHandler {
 public:
  GrammarProcess(net::EventLoop& loop, GrammarProgram program, const engine::TokenPieces& pieces);
  ~GrammarProcess();
  GrammarProcess(const GrammarProcess&) = delete;
  GrammarProcess& operator=(const GrammarProcess&) = delete;

  // Its caller bounds how many wait.
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
  // The child is gone, or is ended: the grammar that it was compiling fails.
  void lose_child(const std::string& how, Error error);
  void forget_child();
  void end_job();
  void answer(Result<std::string> result);

  net::EventLoop& loop_;
  const GrammarProgram program_;
  net::Fd vocabulary_;  // A sealed memfd.
  std::unique_ptr<net::ChildProcess> child_;
  net::Fd channel_;
  bool ready_ = false;     // The child has said so.
  bool answered_ = false;  // The child has compiled or refused another grammar before.
  bool running_ = false;   // The first of jobs_ is with the child.
  std::optional<net::TimerId> deadline_;
  std::deque<GrammarJob> jobs_;
  std::string unsent_;
  std::string received_;
};

}  // namespace pdjob::worker
