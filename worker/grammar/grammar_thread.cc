#include "worker/grammar/grammar_thread.h"

#include <utility>

#include "engine/sampler.h"

namespace pdjob::worker {

GrammarThread::GrammarThread(net::Loop& loop, const engine::Vocabulary& vocabulary,
                             GrammarProgram program)
    : loop_(loop), vocabulary_(vocabulary), program_(std::move(program)) {}

GrammarThread::~GrammarThread() {
  if (thread_) {
    own_loop_->stop();
    thread_->join();
  }
}

void GrammarThread::submit(engine::StructureKind kind, std::string text, StructureDepth depth,
                           std::string digest, Then then) {
  if (!thread_) {
    own_loop_.emplace();
    thread_.emplace([this] {
      own_loop_->run();
      process_.reset();  // The child dies with this thread.
    });
  }
  own_loop_->post([this, kind, text = std::move(text), depth, digest = std::move(digest),
                   then = std::move(then)] { work(kind, text, depth, digest, then); });
}

Duration GrammarThread::standstill() const {
  return own_loop_ ? own_loop_->turn_lasted() : Duration::zero();
}

void GrammarThread::work(engine::StructureKind kind, const std::string& text, StructureDepth depth,
                         const std::string& digest, const Then& then) {
  auto checked = engine::check_structure(kind, text);
  if (!checked) {
    return answer(then, checked.error());
  }
  if (depth == StructureDepth::kChecked) {
    return answer(then, Compiled{.grammar = nullptr, .not_held = std::move(checked->not_held)});
  }
  if (!process_) {
    const engine::TokenPieces pieces = engine::grammar_pieces(vocabulary_);
    tokens_ = engine::open_grammar_tokens(pieces);
    process_.emplace(*own_loop_, program_, pieces);
  }
  process_->submit({.kind = kind,
                    .checked = std::move(checked->text),
                    .digest = digest,
                    .then = [this, then, not_held = std::move(checked->not_held)](
                                const Result<std::string>& compiled) {
                      answer(then, read(compiled, not_held));
                    }});
}

Result<GrammarThread::Compiled> GrammarThread::read(const Result<std::string>& compiled,
                                                    const std::string& not_held) const {
  if (!compiled) {
    return compiled.error();
  }
  PDJOB_TRY(auto grammar, engine::CompiledGrammar::read(tokens_, *compiled));
  return Compiled{.grammar = std::move(grammar), .not_held = not_held};
}

void GrammarThread::answer(const Then& then, Result<Compiled> result) {
  loop_.post([then, result = std::move(result)] { then(result); });
}

}  // namespace pdjob::worker
