// GrammarStore: a worker's cache of compiled grammars, keyed by the digest of the client's text.
// Requests for the same grammar share its compilation and its memory. Refusals are cached too, so
// that an attack costs its price only once. Loop-bound.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/grammar/grammar_thread.h"

namespace pdjob::worker {

// Same contract as GrammarThread::submit.
using GrammarMaker = std::function<void(engine::StructureKind, std::string text, StructureDepth,
                                        std::string digest, GrammarThread::Then)>;

class GrammarStore {
 public:
  explicit GrammarStore(GrammarMaker make) : make_(std::move(make)) {}

  // Calls `then` at once if the grammar is cached, otherwise in a later turn. Its errors:
  // kInvalidArgument if the grammar is invalid; kOverloaded if too many requests wait, or if it
  // took too long.
  void find(engine::StructureKind kind, const std::string& text, StructureDepth depth,
            GrammarThread::Then then);

  size_t kept() const { return kept_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Kept {
    std::string key;
    Result<GrammarThread::Compiled> result;
    size_t bytes = 0;
  };

  void take(const std::string& key, const Result<GrammarThread::Compiled>& result);
  void keep(const std::string& key, const Result<GrammarThread::Compiled>& result);

  const GrammarMaker make_;
  std::list<Kept> kept_;  // Most recently used first.
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key_;
  std::unordered_map<std::string, std::vector<GrammarThread::Then>> waiting_;
  size_t waiters_ = 0;
  size_t bytes_ = 0;
};

}  // namespace pdjob::worker
