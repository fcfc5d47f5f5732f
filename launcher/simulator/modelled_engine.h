// ModelledEngine: an engine that computes nothing. Its steps take the time of a model; it counts
// the rows of each sequence, and its logits always say the same token. The rows of all sequences
// are the same few bytes, so a fleet of large engines needs little memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launcher/simulator/sim_engine.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

// Of one KV row. The wire takes its time per byte, so rows must be long beside what else a transfer
// carries: its last token's logits count as two rows.
inline constexpr uint32_t kModelledRowBytes = 512;

class ModelledEngine final : public SimEngine {
 public:
  struct Options {
    worker::EngineSize size;
    std::string model;
    StepTime step_time;
  };
  explicit ModelledEngine(const Options& options);

  const engine::ModelFacts& facts() const override { return facts_; }
  const engine::EngineConfig& config() const override { return config_; }
  const engine::Vocabulary& vocabulary() const override { return text_->vocabulary(); }
  const engine::KvRegion& kv_region(SequenceId /*sequence*/) const override { return region_; }
  Status step(std::span<const engine::StepItem> items) override;
  std::span<const float> logits(SequenceId /*sequence*/) const override { return logits_; }
  // No request of a simulated load asks for these.
  std::span<const float> logits_at(SequenceId /*sequence*/, uint32_t /*index*/) const override {
    return logits_;
  }
  std::span<const float> hidden_at(SequenceId /*sequence*/, uint32_t /*index*/) const override {
    return {};
  }
  uint32_t length(SequenceId sequence) const override { return lengths_.at(sequence.value); }
  Status reserve(SequenceId sequence, uint32_t rows) override;
  Status fork(SequenceId from, SequenceId to) override { return reserve(to, length(from)); }
  void clear(SequenceId sequence) override { lengths_.at(sequence.value) = 0; }
  void trim(SequenceId sequence, uint32_t rows) override;

 private:
  const std::unique_ptr<engine::Engine>
      text_;  // Of one sequence: has the vocabulary and the facts.
  engine::ModelFacts facts_;
  engine::EngineConfig config_;
  std::vector<std::byte> rows_;  // Never looked at.
  engine::KvRegion region_;
  std::vector<uint32_t> lengths_;
  std::vector<float> logits_;
};

}  // namespace pdjob::simulation
