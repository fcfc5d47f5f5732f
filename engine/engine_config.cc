#include "engine/engine_config.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/limits.h"

namespace pdjob::engine {

namespace {

constexpr const char* kOwnKeys[] = {"kv_type",
                                    "cpu",
                                    "lend_threads",
                                    "sequences",
                                    "tokens_per_sequence",
                                    "batch_tokens",
                                    "shared_kv",
                                    "gpu_layers",
                                    "fake_delay_per_step",
                                    "fake_delay_per_token",
                                    "fake_crash_on_token",
                                    "fake_hang_on_token"};

// The recipes of other makes are words, too, so that a new one needs no code.
void read_kind(ConfigReader& in, EngineConfig& config) {
  std::vector<const char*> words = {"llama", "fake", "command"};
  constexpr size_t kOwn = 2;
  for (const std::string& recipe : shipped_engine_recipes()) {
    words.push_back(recipe.c_str());
  }
  size_t index = config.kind == EngineKind::kFake ? 1 : 0;
  if (config.kind == EngineKind::kForeign) {
    index = static_cast<size_t>(std::ranges::find(words, config.foreign.make) - words.begin());
  }
  in.choice("kind", index, words,
            {"What runs the model. `fake` needs no model and answers with deterministic nonsense. "
             "`vllm`, `sglang` and `command` are engines of other makes, which a worker runs as a "
             "child process."});
  config.foreign.make = index < kOwn ? "" : words[index];
  config.kind = index == 0   ? EngineKind::kLlama
                : index == 1 ? EngineKind::kFake
                             : EngineKind::kForeign;
}

void check_kind(ConfigReader& in, const EngineConfig& config) {
  for (const char* const key : kOwnKeys) {
    if (config.kind == EngineKind::kForeign && in.has(key)) {
      in.fail(key,
              "is for pdjob's own engine: give " + config.foreign.make + " its options in `args`");
    }
  }
}

}  // namespace

const char* to_string(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kQ8_0:
      return "q8_0";
  }
  return "unknown";
}

bool same_engine(const EngineConfig& one, const EngineConfig& other) {
  const auto all = [](const EngineConfig& engine) {
    return std::tie(
        engine.kind, engine.model_path, engine.served_name, engine.kv_type, engine.cpu,
        engine.threads, engine.lend_threads, engine.sequences, engine.tokens_per_sequence,
        engine.batch_tokens, engine.shared_kv, engine.gpu, engine.gpu_layers, engine.cuda.device,
        engine.cuda.library, engine.cpu_computes_in_gpu_memory, engine.fake_delay_per_step,
        engine.fake_delay_per_token, engine.fake_crash_on_token, engine.fake_hang_on_token);
  };
  return one.kind != EngineKind::kForeign && all(one) == all(other);
}

bool borrows_threads(const EngineConfig& config) {
  return config.lend_threads && config.kind == EngineKind::kLlama &&
         config.kv_type == KvType::kQ8_0 && !config.gpu && config.gpu_layers == 0;
}

void read(ConfigReader& in, EngineConfig& config) {
  read_kind(in, config);
  in.field("kv_type", config.kv_type, {{"f16", KvType::kF16}, {"q8_0", KvType::kQ8_0}},
           {"Type of the KV cache; with q8_0 the same prompt gives the same tokens in any batch."});
  using enum CpuKernels;
  in.field("cpu", config.cpu,
           {{"auto", kAuto},
            {"x64", kX64},
            {"sse42", kSse42},
            {"haswell", kHaswell},
            {"alderlake", kAlderlake},
            {"skylakex", kSkylakex},
            {"cascadelake", kCascadelake},
            {"zen4", kZen4}},
           {"The CPU that libllama's kernels are made for, in a package of pdjob. KV moves only "
            "between workers with the same kernels. So if a job's machines differ, name what all "
            "of them can run. `auto`: each worker takes the fastest that its machine can run."});
  in.field("threads", config.threads, {"Threads that compute, per worker."}, {1, 512});
  if (in.has("threads") && config.kind != EngineKind::kForeign) {
    config.lend_threads = false;
  }
  in.field("lend_threads", config.lend_threads,
           {"Workers of the job on one machine lend each other the threads of those that have no "
            "work. Default: only if `threads` is not set. Without effect for f16 KV and GPUs."});
  in.field("sequences", config.sequences, {"Sequences a worker holds at once."},
           {1, limits::kSequencesMax});
  in.field("tokens_per_sequence", config.tokens_per_sequence,
           {"Prompt and output of one sequence; rounded up to whole memory pages.", "tokens"},
           {16, 1U << 20});
  in.field("batch_tokens", config.batch_tokens,
           {"Most tokens of one engine step, over all sequences.", "tokens"}, {1, 16384});
  in.field("shared_kv", config.shared_kv,
           {"Keep KV in memory that a prefill worker on the same machine can write directly."});
  uint32_t part = config.gpu ? config.gpu_percent : 0;
  in.portion("gpu", part,
             {"Compute on the GPU that `gpu.device` names, and keep KV in its memory. "
              "`llama` needs a build with CUDA: `./dev build cuda`. 0.5: a worker gets half of a "
              "GPU, and others get the rest (docs/how-to/gpus.md#share-a-gpu)."});
  config.gpu = part > 0;
  config.gpu_percent = part > 0 ? part : 100;
  in.field("near", config.near,
           {"Choose GPUs that are near each other, and use the NICs, CPU cores and memory that are "
            "nearest to them. `false`: take GPUs in the order of their numbers, and set nothing. "
            "Without effect where a machine does not tell what is near."});
  in.field("gpu_layers", config.gpu_layers,
           {"Layers that the GPU computes, the output counted as one; 0: all with `gpu`, else "
            "none. Fewer than all keep KV in the host's memory, so `gpu` must be false."},
           {0, 1U << 16});
  in.field("fake_delay_per_step", config.fake_delay_per_step,
           {.doc = "The fake engine sleeps this long in each step, beside its tokens' time."},
           {.min = Duration::zero(), .max = std::chrono::seconds(10)});
  in.field("fake_delay_per_token", config.fake_delay_per_token,
           {"What the fake engine sleeps for each token of a step."},
           {Duration::zero(), std::chrono::seconds(10)});
  in.field("fake_crash_on_token", config.fake_crash_on_token,
           {"For tests: the fake engine aborts when it computes this token; 0: never."}, {0, 255});
  in.field("fake_hang_on_token", config.fake_hang_on_token,
           {"For tests: the fake engine hangs when it computes this token; 0: never."}, {0, 255});
  read(in, config.foreign);
  if (config.foreign.gpus > 0 && in.has("gpu") && !config.gpu) {
    in.fail("gpus", "is " + std::to_string(config.foreign.gpus) + ", and `gpu` is false");
  }
  config.gpu = config.gpu || config.foreign.gpus > 0;
  check_kind(in, config);
  if (config.batch_tokens < config.sequences) {
    in.fail("batch_tokens", "must be at least `sequences`, or a step cannot serve them all");
  }
}

}  // namespace pdjob::engine
