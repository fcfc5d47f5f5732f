// SimEngine: the fake engine (engine/fake_engine.h) in a simulated process. Its steps take virtual
// time (step_time.h). Its logits say the same token always, so that no step reads its rows.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "launcher/simulator/step_time.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

class SimEngine : public engine::Engine {
 public:
  struct Options {
    worker::EngineSize size;
    bool shared_kv = false;
    std::string model;
    StepTime step_time;
    std::string file = "0";  // Engines with another one have another fingerprint.
  };
  explicit SimEngine(const Options& options);

  // The virtual time that steps have taken since the last call.
  Duration take_time() { return std::exchange(time_, Duration::zero()); }
  // The beginning of a step that never ends; kNever: there is none.
  virtual Instant hangs_since() const { return kNever; }

  const engine::ModelFacts& facts() const override { return inner_->facts(); }
  const engine::EngineConfig& config() const override { return inner_->config(); }
  const engine::Vocabulary& vocabulary() const override { return inner_->vocabulary(); }
  const engine::KvRegion& kv_region(SequenceId sequence) const override {
    return inner_->kv_region(sequence);
  }
  Status step(std::span<const engine::StepItem> items) override;
  std::span<const float> logits(SequenceId /*sequence*/) const override { return flat_logits_; }
  std::span<const float> logits_at(SequenceId sequence, uint32_t index) const override {
    return inner_->logits_at(sequence, index);
  }
  std::span<const float> hidden_at(SequenceId sequence, uint32_t index) const override {
    return inner_->hidden_at(sequence, index);
  }
  uint32_t length(SequenceId sequence) const override { return inner_->length(sequence); }
  Status reserve(SequenceId sequence, uint32_t rows) override {
    return inner_->reserve(sequence, rows);
  }
  Status fork(SequenceId from, SequenceId to) override { return inner_->fork(from, to); }
  void clear(SequenceId sequence) override { inner_->clear(sequence); }
  void trim(SequenceId sequence, uint32_t rows) override { inner_->trim(sequence, rows); }

 protected:
  engine::Engine& inner() const { return *inner_; }
  // What a step of these items takes.
  Duration time_of(std::span<const engine::StepItem> items) const;
  void spend(Duration time) { time_ += time; }

 private:
  const std::unique_ptr<engine::Engine> inner_;
  const StepTime step_time_;
  std::vector<float> flat_logits_;
  std::vector<engine::StepItem> unread_;  // Of one step; here so that its memory stays.
  Duration time_{};
};

}  // namespace pdjob::simulation
