// GrammarThread: the thread that checks grammars, has a GrammarProcess compile them, and reads them
// back. So the loop and the engine need not wait. It starts with the first grammar, because most
// workers never get one. Used from the loop thread. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/grammar_compiler.h"
#include "net/loop/event_loop.h"
#include "worker/grammar/grammar_process.h"

namespace pdjob::worker {

// How far a structure is processed. kChecked only checks whether it would be refused at once.
enum class StructureDepth : uint8_t { kChecked, kCompiled };

class GrammarThread {
 public:
  struct Compiled {
    std::shared_ptr<const engine::CompiledGrammar> grammar;  // Null if it was only checked.
    std::string not_held;  // What the output is not held to, for a header; empty: nothing.
  };
  using Then = std::function<void(Result<Compiled>)>;

  // Answers arrive on `loop`. `loop` and `vocabulary` must outlive this object.
  GrammarThread(net::Loop& loop, const engine::Vocabulary& vocabulary, GrammarProgram program);
  ~GrammarThread();
  GrammarThread(const GrammarThread&) = delete;
  GrammarThread& operator=(const GrammarThread&) = delete;

  // Calls `then` in a later turn of the loop. The caller bounds how many wait.
  void submit(engine::StructureKind kind, std::string text, StructureDepth depth,
              std::string digest, Then then);

  // How long the thread has been at its current piece of work; zero while it waits, also for its
  // GrammarProcess, which has a deadline.
  Duration standstill() const;

 private:
  // These run on the thread.
  void work(engine::StructureKind kind, const std::string& text, StructureDepth depth,
            const std::string& digest, const Then& then);
  Result<Compiled> read(const Result<std::string>& compiled, const std::string& not_held) const;
  void answer(const Then& then, Result<Compiled> result);

  net::Loop& loop_;
  const engine::Vocabulary& vocabulary_;
  const GrammarProgram program_;
  std::optional<net::EventLoop> own_loop_;               // The thread's.
  std::shared_ptr<const engine::GrammarTokens> tokens_;  // The thread's.
  std::optional<GrammarProcess> process_;                // The thread's.
  std::optional<std::thread> thread_;
};

}  // namespace pdjob::worker
