#include "engine/threads/llama_threads.h"

#include <cstdio>
#include <utility>

#include <llama.h>

#include "common/log.h"
#include "common/os/real_clock.h"
#include "engine/kernels/cpu_kernels.h"

namespace pdjob::engine {
namespace {

// How long ggml's threads spin for the next graph before they sleep: about a millisecond, the gap
// between two steps of a busy engine.
constexpr uint32_t kThreadPolling = 1;
// Helpers that spin would take a core from the engine that it was borrowed from.
constexpr uint32_t kNoPolling = 0;

double in_ms(Duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

void say_rest(const BorrowedStep& step, const LendingRest& rest) {
  char text[256];
  std::snprintf(text, sizeof text,
                "borrowed threads do not pay, other programs use the cores: a step on %u threads "
                "took %.0f ms, own threads need about %.0f ms. This engine borrows none for %.1f s",
                step.threads, in_ms(step.took), in_ms(step.alone()), seconds(rest.length()));
  log::info(text);
}

}  // namespace

void LlamaThreads::Free::operator()(ggml_threadpool* threads) const { free_cpu_threads(threads); }

LlamaThreads::LlamaThreads(uint32_t own, int board) : own_(own) {
  if (board < 0) {
    return;
  }
  auto joined = ThreadBoard::join(board, own_);
  if (joined) {
    board_ = std::move(*joined);
  } else {
    log::warn("this engine computes with its own threads only: " + joined.error().message);
  }
}

Status LlamaThreads::attach(llama_context& context) {
  pool_ = make(own_);
  if (pool_ == nullptr) {
    return Error{ErrorCode::kUnavailable, "cannot start the engine's threads"};
  }
  made_ = own_;
  context_ = &context;
  llama_attach_threadpool(context_, pool_.get(), pool_.get());
  return ok();
}

LlamaThreads::Pool LlamaThreads::make(uint32_t count) const {
  return Pool(new_cpu_threads(count, board_ ? kNoPolling : kThreadPolling));
}

// More threads are made the first time that a step may use them.
void LlamaThreads::use(uint32_t count) {
  if (count > made_) {
    if (Pool more = make(count); more == nullptr) {
      count = made_;
    } else {
      before_ = std::exchange(pool_, std::move(more));
      made_ = count;
      llama_attach_threadpool(context_, pool_.get(), pool_.get());
    }
  }
  const auto threads = static_cast<int32_t>(count);
  llama_set_n_threads(context_, threads, threads);
  used_ = count;
}

void LlamaThreads::begin_step() {
  if (!board_) {
    return;
  }
  began_ = real_now();
  lending_.rests = rest_.rests(began_);
  use(board_->begin_step(began_, lending_.rests ? Borrow::kNo : Borrow::kYes));
  lending_.borrowed = used_ > own_;
  if (lending_.borrowed) {
    cpu_began_ = thread_cpu_time();
  }
}

void LlamaThreads::end_step() {
  if (!board_) {
    return;
  }
  const Instant now = real_now();
  board_->end_step(now);
  if (!lending_.borrowed) {
    return;
  }
  ++lending_.steps;
  const BorrowedStep step{.own = own_,
                          .threads = used_,
                          .took = now - began_,
                          .computed = thread_cpu_time() - cpu_began_};
  const bool first = rest_.length() == Duration::zero();
  if (rest_.judge(step, now) && first) {
    say_rest(step, rest_);
  }
  lending_.rests_begun = rest_.count();
}

}  // namespace pdjob::engine
