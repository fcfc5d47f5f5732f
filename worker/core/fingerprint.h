// The fingerprint of an engine: the meaning of its KV and tokens. Pure.
#pragma once

#include <string>

#include "engine/engine.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::worker {

// The facts that both ends of a KV link compare field by field.
kvtransfer::Fingerprint link_fingerprint(const engine::ModelFacts& facts);

enum class Weights { kFixed, kUpdated };
// WorkerEntry::fingerprint of an engine with these facts. A job that updates its weights keeps all
// workers at the same ones by itself, and a stream may go on with the next ones. So there the
// digest of the model does not count.
std::string fingerprint_of(const engine::ModelFacts& facts, Weights weights);
// Its part that is the same whatever computes: tokens of one engine mean the same to another.
std::string meaning_of(const engine::ModelFacts& facts, Weights weights);

}  // namespace pdjob::worker
