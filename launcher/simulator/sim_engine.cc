#include "launcher/simulator/sim_engine.h"

namespace pdjob::simulation {

SimEngine::SimEngine(const Options& options)
    : inner_(*engine::open_engine({.kind = engine::EngineKind::kFake,
                                   .model_path = options.file,
                                   .served_name = options.model,
                                   .sequences = options.size.sequences,
                                   .tokens_per_sequence = options.size.rows_per_sequence,
                                   .batch_tokens = options.size.batch_tokens,
                                   .shared_kv = options.shared_kv,
                                   .own_weights = true})),
      step_time_(options.step_time),
      flat_logits_(inner_->facts().vocabulary) {
  flat_logits_['a'] = 100;
}

Duration SimEngine::time_of(std::span<const engine::StepItem> items) const {
  Duration time = step_time_.begin();
  for (const engine::StepItem& item : items) {
    time += step_time_.of(inner_->length(item.sequence), static_cast<uint32_t>(item.tokens.size()));
  }
  return time;
}

Status SimEngine::step(std::span<const engine::StepItem> items) {
  spend(time_of(items));
  unread_.assign(items.begin(), items.end());
  for (engine::StepItem& item : unread_) {
    item.wants_logits = false;
  }
  return inner_->step(unread_);
}

}  // namespace pdjob::simulation
