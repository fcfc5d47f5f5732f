// step_time_bench MODEL.gguf: how long steps of the real engine take, by what is in them, and the
// model that is fitted to it (launcher/capacity). It prints what `pdjob tune --measure` writes.
// That measures from outside, by wall time; this measures the engine alone, by CPU time. The engine
// has one thread, so that this is its wall time on a core of its own.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "launcher/capacity/step_fit.h"

namespace {

using namespace pdjob;
using namespace pdjob::engine;
using launcher::ProbeKind;
using launcher::StepProbe;

constexpr uint32_t kSequences = 8;
constexpr uint32_t kRows = 4096;
constexpr uint32_t kRepeats = 5;
constexpr uint32_t kFillTokens = 256;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void require(const Status& status) {
  if (!status.has_value()) {
    std::fprintf(stderr, "step_time_bench: %s\n", status.error().message.c_str());
    std::exit(1);
  }
}

class Bench {
 public:
  explicit Bench(Engine& engine) : engine_(engine) {
    for (uint32_t i = 0; i < kSequences; ++i) {
      samplers_.push_back(open_sampler(engine, {.temperature = 0}, {}).value());
    }
    for (uint32_t i = 0; i < kRows; ++i) {
      tokens_.push_back(static_cast<Token>((i * 7919 + 17) % engine.facts().vocabulary));
    }
  }

  // All sequences have so many rows.
  void fill(uint32_t rows) {
    for (uint32_t i = 1; i < kSequences; ++i) {
      engine_.clear(SequenceId{i});
    }
    while (engine_.length(SequenceId{0}) < rows) {
      const uint32_t there = engine_.length(SequenceId{0});
      const std::vector<uint32_t> counts{std::min(kFillTokens, rows - there)};
      run(counts);
    }
    for (uint32_t i = 1; i < kSequences && rows > 0; ++i) {
      require(engine_.fork(SequenceId{0}, SequenceId{i}));
    }
  }

  // Runs a step with so many tokens of each sequence, several times.
  void measure(ProbeKind kind, const std::vector<uint32_t>& counts, uint32_t rows) {
    StepProbe& probe = probes_.emplace_back(StepProbe{.kind = kind, .work = {.steps = 1}});
    for (const uint32_t count : counts) {
      probe.work.add(rows, count);
      probe.name += (probe.name.empty() ? "" : "+") + std::to_string(count);
    }
    probe.name += " at " + std::to_string(rows);
    for (uint32_t repeat = 0; repeat < kRepeats; ++repeat) {
      probe.seconds.push_back(run(counts));
      for (uint32_t i = 0; i < counts.size(); ++i) {
        engine_.trim(SequenceId{i}, rows);
      }
    }
  }

  const std::vector<StepProbe>& probes() const { return probes_; }

 private:
  // With the sampling of those that decode.
  double run(const std::vector<uint32_t>& counts) {
    std::vector<StepItem> items;
    for (uint32_t i = 0; i < counts.size(); ++i) {
      items.push_back({SequenceId{i}, std::span(tokens_).first(counts[i]), counts[i] == 1});
    }
    const double start = cpu_seconds();
    require(engine_.step(items));
    for (uint32_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 1) {
        static_cast<void>(samplers_[i]->sample(engine_.logits(SequenceId{i})));
      }
    }
    return cpu_seconds() - start;
  }

  Engine& engine_;
  std::vector<std::unique_ptr<Sampler>> samplers_;
  std::vector<Token> tokens_;
  std::vector<StepProbe> probes_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: step_time_bench MODEL.gguf\n");
    return 2;
  }
  auto engine = open_engine({.model_path = argv[1],
                             .sequences = kSequences,
                             .tokens_per_sequence = kRows,
                             .batch_tokens = 512});
  if (!engine.has_value()) {
    std::fprintf(stderr, "step_time_bench: %s\n", engine.error().message.c_str());
    return 1;
  }
  Bench bench(**engine);
  for (const uint32_t rows : {64U, 512U, 1024U, 2048U, 3072U}) {
    bench.fill(rows);
    for (const uint32_t tokens : {16U, 32U, 64U, 128U, 256U}) {
      bench.measure(ProbeKind::kPrefill, {tokens}, rows);
    }
    for (const uint32_t sequences : {1U, 2U, 4U, 8U}) {
      bench.measure(ProbeKind::kDecode, std::vector<uint32_t>(sequences, 1), rows);
    }
    // The model is not fitted to these.
    bench.measure(ProbeKind::kMixed, {1, 1, 64}, rows);
    bench.measure(ProbeKind::kMixed, {1, 1, 1, 1, 128}, rows);
    bench.measure(ProbeKind::kMixed, {1, 1, 1, 1, 1, 16}, rows);
  }
  const auto fit = launcher::fit_steps(bench.probes());
  if (!fit.has_value()) {
    std::fprintf(stderr, "step_time_bench: %s\n", fit.error().message.c_str());
    return 1;
  }
  launcher::EngineModel model = launcher::model_of(*fit);
  model.name = argv[1];
  model.engine = "pdjob";
  model.notes = {"CPU time of steps, one thread"};
  launcher::round_figures(model);
  const simulation::StepTime& step = model.step;
  std::fprintf(stderr, "%s\n--step %.0f,%.0f,%.0f,%.0f,%.0f\n", launcher::label(model).c_str(),
               step.fixed.count(), step.per_prompt_token.count(), step.per_sequence.count(),
               step.per_prompt_read.count(), step.per_context_read.count());
  std::fputs(launcher::engine_model_json(model).c_str(), stdout);
  return 0;
}
