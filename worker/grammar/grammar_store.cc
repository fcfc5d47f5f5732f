#include "worker/grammar/grammar_store.h"

#include <utility>

#include "common/crypto/sha256.h"
#include "common/limits.h"

namespace pdjob::worker {
namespace {

// The memory of an entry without its grammar.
constexpr size_t kEntryBytes = 1 * limits::kKiB;

std::string key_of(engine::StructureKind kind, const std::string& digest, StructureDepth depth) {
  return std::to_string(static_cast<int>(kind)) +
         (depth == StructureDepth::kChecked ? " checked " : " ") + digest;
}

}  // namespace

void GrammarStore::find(engine::StructureKind kind, const std::string& text, StructureDepth depth,
                        GrammarThread::Then then) {
  const std::string digest = sha256_of(text);
  const std::string key = key_of(kind, digest, depth);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    const Result<GrammarThread::Compiled> result = kept_.front().result;
    return then(result);
  }
  const bool known = waiting_.contains(key);
  if (waiters_ >= limits::kRequestsQueuedMax ||
      (!known && waiting_.size() >= limits::kGrammarsQueuedMax)) {
    return then(Error{ErrorCode::kOverloaded, "too many grammars wait to be compiled"});
  }
  waiting_[key].push_back(std::move(then));
  ++waiters_;
  if (!known) {
    make_(kind, text, depth, digest,
          [this, key](const Result<GrammarThread::Compiled>& result) { take(key, result); });
  }
}

void GrammarStore::take(const std::string& key, const Result<GrammarThread::Compiled>& result) {
  if (result || result.error().code == ErrorCode::kInvalidArgument) {
    keep(key, result);
  }
  const std::vector<GrammarThread::Then> all = std::move(waiting_[key]);
  waiting_.erase(key);
  waiters_ -= all.size();
  for (const GrammarThread::Then& then : all) {
    then(result);
  }
}

void GrammarStore::keep(const std::string& key, const Result<GrammarThread::Compiled>& result) {
  const size_t bytes = kEntryBytes + (result && result->grammar ? result->grammar->bytes() : 0);
  kept_.push_front({.key = key, .result = result, .bytes = bytes});
  by_key_[key] = kept_.begin();
  bytes_ += bytes;
  while (kept_.size() > limits::kGrammarsKeptMax ||
         (bytes_ > limits::kGrammarsKeptBytesMax && kept_.size() > 1)) {
    bytes_ -= kept_.back().bytes;
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

}  // namespace pdjob::worker
