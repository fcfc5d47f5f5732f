// FaultyEngine: a simulated engine whose tokens depend on all rows of their sequence. Its steps fail,
// hang, get slow, and crash the process at the killer's token.
//
// Oracle: the text that one such engine alone gives a request.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "launcher/simulator/sim_engine.h"
#include "tests/simulation/workload.h"

namespace pdjob::simulation {

class FaultyEngine final : public SimEngine {
 public:
  struct Faults {
    std::function<bool()> step_fails;
    std::function<bool()> reserve_fails;
    std::function<void()> crash;  // The process is to die at once.
    std::function<Instant()> now;
  };
  // Engines with another number of a file give other tokens.
  FaultyEngine(Options options, uint32_t file, Faults faults);

  void set_slowness(uint32_t factor) { slowness_ = factor; }
  void fail_next_step() { next_step_fails_ = true; }
  // The next step never ends.
  void hang() { hang_asked_ = true; }
  Instant hangs_since() const override { return hangs_since_; }

  Status step(std::span<const engine::StepItem> items) override;
  Status reserve(SequenceId sequence, uint32_t rows) override;
  std::span<const float> logits(SequenceId sequence) const override {
    return of_file(inner().logits(sequence), file_, turned_[sequence]);
  }
  // The logits that the model of this file gives instead.
  static std::span<const float> of_file(std::span<const float> logits, uint32_t file,
                                        std::vector<float>& buffer);

 private:
  const uint32_t file_;
  mutable std::map<SequenceId, std::vector<float>> turned_;
  const Faults faults_;
  uint32_t slowness_ = 1;
  bool next_step_fails_ = false;
  bool hang_asked_ = false;
  Instant hangs_since_ = kNever;
};

class Oracle {
 public:
  explicit Oracle(uint32_t rows_per_sequence);
  // Whether these are the texts, by choice, that an engine with one of the files gives.
  bool knows(const Ask& ask, const std::vector<SimText>& texts);
  // Engines may have this file, too.
  void add_file(uint32_t file) { files_.insert(file); }

 private:
  std::vector<SimText> texts_of(const Ask& ask, uint32_t file);

  std::set<uint32_t> files_ = {0};
  const std::unique_ptr<engine::Engine> engine_;
};

}  // namespace pdjob::simulation
