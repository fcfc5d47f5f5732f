#include "tests/simulation/faulty_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"

namespace pdjob::simulation {
namespace {

SimEngine::Options with_file(SimEngine::Options options, uint32_t file) {
  options.file = std::to_string(file);
  return options;
}

}  // namespace

FaultyEngine::FaultyEngine(Options options, uint32_t file, Faults faults)
    : SimEngine(with_file(std::move(options), file)), file_(file), faults_(std::move(faults)) {}

Status FaultyEngine::step(std::span<const engine::StepItem> items) {
  if (std::exchange(hang_asked_, false)) {
    hangs_since_ = faults_.now();
    spend(std::chrono::hours(1));
    return Error{ErrorCode::kInternal, "the step never ends"};
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (std::ranges::find(items[i].tokens, kKillingToken) != items[i].tokens.end()) {
      spend(slowness_ * time_of(items.first(i + 1)));
      faults_.crash();
      return Error{ErrorCode::kInternal, "the process crashes"};
    }
  }
  spend(slowness_ * time_of(items));
  if (std::exchange(next_step_fails_, false) || faults_.step_fails()) {
    return Error{ErrorCode::kInternal, "the engine failed"};
  }
  return inner().step(items);
}

std::span<const float> FaultyEngine::of_file(std::span<const float> logits, uint32_t file,
                                             std::vector<float>& buffer) {
  if (file == 0) {
    return logits;
  }
  buffer.assign(logits.begin(), logits.end());
  std::ranges::rotate(buffer, buffer.begin() + file);
  return buffer;
}

Status FaultyEngine::reserve(SequenceId sequence, uint32_t rows) {
  if (faults_.reserve_fails()) {
    return Error{ErrorCode::kOverloaded, "no rows"};
  }
  return inner().reserve(sequence, rows);
}

Oracle::Oracle(uint32_t rows_per_sequence)
    : engine_(*engine::open_engine({.kind = engine::EngineKind::kFake,
                                    .model_path = "0",
                                    .served_name = "oracle",
                                    .sequences = 1,
                                    .tokens_per_sequence = rows_per_sequence,
                                    .batch_tokens = 512,
                                    .own_weights = true})) {}

bool Oracle::knows(const Ask& ask, const std::vector<SimText>& texts) {
  return std::ranges::any_of(files_, [&](uint32_t file) { return texts_of(ask, file) == texts; });
}

std::vector<SimText> Oracle::texts_of(const Ask& ask, uint32_t file) {
  const SequenceId sequence{0};
  const auto run = [&](std::span<const Token> tokens) {
    const engine::StepItem item{.sequence = sequence, .tokens = tokens, .wants_logits = true};
    PDJOB_CHECK(engine_->step({&item, 1}).has_value());
  };
  std::vector<SimText> texts;
  for (uint32_t choice = 0; choice < ask.choices; ++choice) {
    const StopParams stop{.max_tokens = static_cast<int32_t>(ask.max_tokens)};
    const auto sampler =
        *engine::open_sampler(*engine_, {.seed = ask.seed + choice}, ask.prompt, stop);
    engine_->clear(sequence);
    run(ask.prompt);
    engine::TextStream stream(stop);
    SimText text;
    std::vector<float> buffer;
    for (uint32_t tokens = 1; text.finish.empty(); ++tokens) {
      const Token token =
          sampler->sample(FaultyEngine::of_file(engine_->logits(sequence), file, buffer))->token;
      if (engine_->vocabulary().is_end(token)) {
        text.finish = "stop";
        break;
      }
      stream.push(engine_->vocabulary().piece(token, false), text.text);
      if (tokens == ask.max_tokens) {
        text.finish = "length";
      } else {
        run({&token, 1});
      }
    }
    stream.finish(text.text);
    texts.push_back(std::move(text));
  }
  engine_->clear(sequence);
  return texts;
}

}  // namespace pdjob::simulation
