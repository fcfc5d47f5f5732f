#include "launcher/simulator/modelled_engine.h"

#include "common/check.h"

namespace pdjob::simulation {
namespace {

// As engines of pdjob round (engine/fake_engine.cc).
constexpr uint32_t kRowsUnit = 64;

std::unique_ptr<engine::Engine> text_of(const std::string& model) {
  return *engine::open_engine({.kind = engine::EngineKind::kFake,
                               .served_name = model,
                               .sequences = 1,
                               .tokens_per_sequence = kRowsUnit,
                               .shared_kv = false});
}

}  // namespace

ModelledEngine::ModelledEngine(const Options& options)
    : SimEngine(options.step_time),
      text_(text_of(options.model)),
      facts_(text_->facts()),
      config_(text_->config()),
      lengths_(options.size.sequences, 0),
      logits_(facts_.vocabulary) {
  const uint32_t rows = (options.size.rows_per_sequence + kRowsUnit - 1) / kRowsUnit * kRowsUnit;
  config_.sequences = options.size.sequences;
  config_.tokens_per_sequence = rows;
  config_.batch_tokens = options.size.batch_tokens;
  facts_.context_trained = rows;
  facts_.kv_bytes_per_token = kModelledRowBytes;
  rows_.resize(size_t{rows} * kModelledRowBytes);
  region_ = {.windows = {{.base = rows_.data(), .row_bytes = kModelledRowBytes}}, .rows_max = rows};
  logits_['a'] = 100;
}

Status ModelledEngine::step(std::span<const engine::StepItem> items) {
  spend(time_of(items));
  for (const engine::StepItem& item : items) {
    uint32_t& rows = lengths_.at(item.sequence.value);
    PDJOB_CHECK(item.tokens.size() <= config_.tokens_per_sequence - rows, rows);
    rows += static_cast<uint32_t>(item.tokens.size());
  }
  return ok();
}

Status ModelledEngine::reserve(SequenceId sequence, uint32_t rows) {
  PDJOB_CHECK(rows > length(sequence) && rows <= config_.tokens_per_sequence, rows);
  lengths_[sequence.value] = rows;
  return ok();
}

void ModelledEngine::trim(SequenceId sequence, uint32_t rows) {
  PDJOB_CHECK(rows <= length(sequence), rows);
  lengths_[sequence.value] = rows;
}

}  // namespace pdjob::simulation
