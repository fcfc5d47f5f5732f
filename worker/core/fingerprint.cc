#include "worker/core/fingerprint.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/crypto/blake2b.h"
#include "common/hex.h"

namespace pdjob::worker {

kvtransfer::Fingerprint link_fingerprint(const engine::ModelFacts& facts) {
  kvtransfer::Fingerprint fields{{"model_digest", facts.digest},
                                 {"kv_type", facts.kv_type},
                                 {"layers", std::to_string(facts.layers)},
                                 {"heads", std::to_string(facts.heads)},
                                 {"kv_heads", std::to_string(facts.kv_heads)},
                                 {"head_dim", std::to_string(facts.head_dim)},
                                 {"vocabulary", std::to_string(facts.vocabulary)},
                                 {"rope", facts.rope},
                                 {"kv_bytes_per_token", std::to_string(facts.kv_bytes_per_token)},
                                 {"library", facts.library}};
  if (!facts.cpu.empty()) {
    fields.emplace_back("cpu", facts.cpu);
  }
  return fields;
}

std::string meaning_of(const engine::ModelFacts& facts, Weights weights) {
  constexpr size_t kBytes = 8;
  engine::ModelFacts compared = facts;
  if (weights == Weights::kUpdated) {
    compared.digest.clear();
  }
  Blake2b sum("pdjob kv");
  compared.cpu.clear();
  for (const auto& [name, value] : link_fingerprint(compared)) {
    sum.add(uint64_t{name.size()}).add(name).add(uint64_t{value.size()}).add(value);
  }
  const Digest meaning = sum.finish();
  return hex_of(std::span(meaning).first(kBytes));
}

std::string fingerprint_of(const engine::ModelFacts& facts, Weights weights) {
  constexpr size_t kKernelBytes = 4;
  std::string text = meaning_of(facts, weights);
  if (!facts.cpu.empty()) {
    const Digest kernels = Blake2b("pdjob kernels").add(facts.cpu).finish();
    text.append("-").append(hex_of(std::span(kernels).first(kKernelBytes)));
  }
  return text;
}

}  // namespace pdjob::worker
