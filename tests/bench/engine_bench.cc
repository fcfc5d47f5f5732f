// engine_bench MODEL.gguf [threads] [repetitions]: tokens per second of our Engine, as one line of
// JSON, to be set beside llama-bench
// (`-p 512 -n 64 -t THREADS -fa 1 -ctk q8_0 -ctv q8_0`) by ./dev bench. Prompt: 512 tokens in one
// step. Decode: greedy through our sampler, from an empty context, as llama-bench does, with 1 and
// with 8 sequences per step.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace {

using namespace pdjob;
using namespace pdjob::engine;

constexpr int kDecodeSteps = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void require(const Status& status) {
  if (!status.has_value()) {
    std::fprintf(stderr, "engine_bench: %s\n", status.error().message.c_str());
    std::exit(1);
  }
}

double prompt_rate(Engine& engine, size_t length) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<Token>((i * 7919 + 17) % engine.facts().vocabulary));
  }
  const StepItem item{SequenceId{0}, tokens, true};
  const double start = now();
  require(engine.step({&item, 1}));
  const double taken = now() - start;
  engine.clear(SequenceId{0});
  return static_cast<double>(length) / taken;
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
  const double taken = now() - start;
  for (uint32_t i = 0; i < sequences; ++i) {
    engine.clear(SequenceId{i});
  }
  return kDecodeSteps * sequences / taken;
}

std::string summary(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  char text[96];
  std::snprintf(text, sizeof(text), "{\"min\":%.2f,\"median\":%.2f,\"max\":%.2f}", rates.front(),
                rates[rates.size() / 2], rates.back());
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: engine_bench MODEL.gguf [threads] [repetitions]\n");
    return 2;
  }
  EngineConfig config{
      .model_path = argv[1], .sequences = 8, .tokens_per_sequence = 1024, .batch_tokens = 512};
  config.threads = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1;
  const int repetitions = argc > 3 ? std::max(1, std::atoi(argv[3])) : 3;
  auto engine = open_engine(config);
  if (!engine.has_value()) {
    std::fprintf(stderr, "engine_bench: %s\n", engine.error().message.c_str());
    return 1;
  }
  std::vector<double> prompt, decode_1, decode_8;
  for (int i = 0; i < repetitions; ++i) {
    prompt.push_back(prompt_rate(**engine, 512));
    decode_1.push_back(decode_rate(**engine, 1));
    decode_8.push_back(decode_rate(**engine, 8));
  }
  std::printf(
      "{\"model\":\"%s\",\"threads\":%u,\"kv_type\":\"%s\",\"prompt_512_tokens_per_second\":%s,"
      "\"decode_1_tokens_per_second\":%s,\"decode_8_tokens_per_second\":%s}\n",
      (*engine)->facts().name.c_str(), config.threads, (*engine)->facts().kv_type.c_str(),
      summary(prompt).c_str(), summary(decode_1).c_str(), summary(decode_8).c_str());
  return 0;
}
