// LlamaThreads: the threads that libllama computes each step with. They are the engine's own, and
// those that other engines of this machine lend (threads/thread_board.h) while that pays
// (threads/lending_rest.h).
//
// Lives on the engine thread. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/result.h"
#include "engine/threads/lending_rest.h"
#include "engine/threads/thread_board.h"

struct ggml_threadpool;
struct llama_context;

namespace pdjob::engine {

class LlamaThreads {
 public:
  // `own` threads. Takes `board` over, the descriptor of a ThreadBoard; -1: none. An engine that
  // cannot share computes with its own threads.
  LlamaThreads(uint32_t own, int board);

  // Starts the engine's own threads for this context, which it must outlive.
  Status attach(llama_context& context);

  // Around each step. Requires: attach().
  void begin_step();
  void end_step();

  const LendingReport& lending() const { return lending_; }

 private:
  struct Free {
    void operator()(ggml_threadpool* threads) const;
  };
  using Pool = std::unique_ptr<ggml_threadpool, Free>;

  Pool make(uint32_t count) const;
  void use(uint32_t count);

  uint32_t own_;
  llama_context* context_ = nullptr;
  std::optional<ThreadBoard> board_;
  // The library still pauses the threads that it used last when it gets others, so those live on.
  Pool before_;
  Pool pool_;
  uint32_t made_ = 0;  // Threads of pool_.
  uint32_t used_ = 0;  // By this step.
  LendingRest rest_;
  LendingReport lending_;
  Instant began_{};
  Duration cpu_began_{};
};

}  // namespace pdjob::engine
