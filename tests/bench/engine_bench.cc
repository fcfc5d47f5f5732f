// engine_bench MODEL.gguf SEQUENCES [threads] prints tokens per second of our Engine, as one line
// of JSON. It does what llama.cpp's own benchmarks do, so engine_bench.py can compare them:
//
//   1 sequence (llama-bench -p 512 -n 64): a warm-up prompt, then 512 tokens in one step.
//     Then 64 steps of one token, from an empty context, three times. It reports their median.
//   8 sequences (llama-batched-bench -npp 128 -ntg 64 -npl 8 -b 512): prompts of 128 tokens.
//     A step takes 512 tokens. Then 64 steps of one token of each sequence.
//
// One thing differs: our tokens are sampled greedily; llama.cpp's benchmarks feed random ones.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace {

using namespace pdjob;
using namespace pdjob::engine;

constexpr uint32_t kStepTokens = 512;
constexpr int kDecodeSteps = 64;
constexpr int kDecodeRuns = 3;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void require(const Status& status) {
  if (!status.has_value()) {
    std::fprintf(stderr, "engine_bench: %s\n", status.error().message.c_str());
    std::exit(1);
  }
}

// Computes a prompt of `length` tokens in each sequence, as many whole prompts in a step as fit.
double prompt_rate(Engine& engine, uint32_t sequences, uint32_t length) {
  std::vector<Token> tokens;
  for (uint32_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<Token>((i * 7919 + 17) % engine.facts().vocabulary));
  }
  const double start = now();
  for (uint32_t next = 0; next < sequences;) {
    std::vector<StepItem> items;
    for (; next < sequences && (items.size() + 1) * length <= kStepTokens; ++next) {
      items.push_back({SequenceId{next}, tokens, true});
    }
    require(engine.step(items));
  }
  return sequences * length / (now() - start);
}

double decode_rate(Engine& engine, uint32_t sequences) {
  std::vector<std::unique_ptr<Sampler>> samplers;
  std::vector<Token> tokens(sequences, 1);
  for (uint32_t i = 0; i < sequences; ++i) {
    samplers.push_back(open_sampler(engine, {.temperature = 0}, {}).value());
  }
  const double start = now();
  for (int step = 0; step < kDecodeSteps; ++step) {
    std::vector<StepItem> items;
    for (uint32_t i = 0; i < sequences; ++i) {
      items.push_back({SequenceId{i}, {&tokens[i], 1}, true});
    }
    require(engine.step(items));
    for (uint32_t i = 0; i < sequences; ++i) {
      tokens[i] = samplers[i]->sample(engine.logits(SequenceId{i})).value().token;
    }
  }
  return kDecodeSteps * sequences / (now() - start);
}

void clear(Engine& engine) {
  for (uint32_t i = 0; i < engine.config().sequences; ++i) {
    engine.clear(SequenceId{i});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int sequences = argc > 2 ? std::stoi(argv[2]) : 0;
  if (sequences < 1) {
    std::fprintf(stderr, "usage: engine_bench MODEL.gguf SEQUENCES [threads]\n");
    return 2;
  }
  EngineConfig config{.model_path = argv[1],
                      .sequences = static_cast<uint32_t>(sequences),
                      .tokens_per_sequence = 1024,
                      .batch_tokens = kStepTokens};
  config.threads = argc > 3 ? static_cast<uint32_t>(std::stoi(argv[3])) : 1;
  auto engine = open_engine(config);
  if (!engine.has_value()) {
    std::fprintf(stderr, "engine_bench: %s\n", engine.error().message.c_str());
    return 1;
  }
  double prompt = 0;
  std::vector<double> decode;
  if (sequences == 1) {
    prompt_rate(**engine, 1, kStepTokens);
    clear(**engine);
    prompt = prompt_rate(**engine, 1, kStepTokens);
    for (int run = 0; run < kDecodeRuns; ++run) {
      clear(**engine);
      decode.push_back(decode_rate(**engine, 1));
    }
  } else {
    prompt = prompt_rate(**engine, config.sequences, 128);
    decode.push_back(decode_rate(**engine, config.sequences));
  }
  std::sort(decode.begin(), decode.end());
  std::printf("{\"prompt\": %.2f, \"decode\": %.2f}\n", prompt, decode[decode.size() / 2]);
  return 0;
}
