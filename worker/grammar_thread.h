// GrammarThread: where grammars are checked, compiled (by a GrammarProcess) and read back, away
// from the loop and the engine. It starts with the first grammar: most workers never see one. Used
// from the loop thread. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/grammar_compiler.h"
#include "net/event_loop.h"
#include "worker/grammar_process.h"

namespace pdjob::worker {

// What of a structure is wanted. kChecked: only whether it would be refused at first sight.
enum class StructureDepth : uint8_t { kChecked, kCompiled };

class GrammarThread {
 public:
  // Null where it was only checked.
  using Compiled = std::shared_ptr<const engine::CompiledGrammar>;
  using Then = std::function<void(Result<Compiled>)>;

  // `loop` is where answers come; all outlive this.
  GrammarThread(net::EventLoop& loop, const engine::Vocabulary& vocabulary, GrammarProgram program);
  ~GrammarThread();
  GrammarThread(const GrammarThread&) = delete;
  GrammarThread& operator=(const GrammarThread&) = delete;

  // `then` is called in a later turn of the loop. Its caller bounds how many wait.
  void submit(engine::StructureKind kind, std::string text, StructureDepth depth,
              std::string digest, Then then);

 private:
  // On the thread.
  void work(engine::StructureKind kind, const std::string& text, StructureDepth depth,
            const std::string& digest, const Then& then);
  void answer(const Then& then, Result<Compiled> result);

  net::EventLoop& loop_;
  const engine::Vocabulary& vocabulary_;
  const GrammarProgram program_;
  net::EventLoop own_loop_;                              // Of the thread.
  std::shared_ptr<const engine::GrammarTokens> tokens_;  // The thread's.
  std::optional<GrammarProcess> process_;                // The thread's.
  std::optional<std::thread> thread_;
};

}  // namespace pdjob::worker
