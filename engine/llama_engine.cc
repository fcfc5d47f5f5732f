#include "engine/llama_engine.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

#include <ggml-backend.h>
#include <llama.h>
#include <log.h>

#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "engine/gpu_kv.h"
#include "engine/kernels/cpu_kernels.h"
#include "engine/kv_spans.h"
#include "engine/llama_vocabulary.h"
#include "engine/model_facts.h"
#include "engine/shared_kv.h"
#include "engine/threads/llama_threads.h"

namespace pdjob::engine {
namespace {

static_assert(std::is_same_v<Token, llama_token>);

constexpr uint32_t kProbeTokens = 256;
constexpr int32_t kAllLayers = -1;

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, FreeModel>;
using ContextPtr = std::unique_ptr<llama_context, FreeContext>;

// A llama_batch for up to `capacity` tokens of one sequence each, made once.
class Batch {
 public:
  explicit Batch(uint32_t capacity)
      : batch_(llama_batch_init(static_cast<int32_t>(capacity), 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void clear() { batch_.n_tokens = 0; }
  void add(Token token, uint32_t position, SequenceId sequence, bool wants_logits) {
    const int32_t at = batch_.n_tokens++;
    batch_.token[at] = token;
    batch_.pos[at] = static_cast<llama_pos>(position);
    batch_.n_seq_id[at] = 1;
    batch_.seq_id[at][0] = static_cast<llama_seq_id>(sequence.value);
    batch_.logits[at] = wants_logits ? 1 : 0;
  }
  int32_t size() const { return batch_.n_tokens; }
  const llama_batch& inner() const { return batch_; }

 private:
  llama_batch batch_;
};

// Writes libllama's warnings and errors to our log, one line each.
void on_library_log(ggml_log_level level, const char* text, void*) {
  std::string_view line(text);
  while (!line.empty() && line.back() == '\n') {
    line.remove_suffix(1);
  }
  if (line.empty()) {
    return;
  }
  if (level == GGML_LOG_LEVEL_ERROR) {
    log::error(line);
  } else if (level == GGML_LOG_LEVEL_WARN) {
    log::warn(line);
  }
}

void start_library() {
  static const bool started = [] {
    llama_log_set(on_library_log, nullptr);
    // The library's chat templates would warn at each use. Their errors are thrown, too.
    common_log_set_verbosity_thold(-1);
    llama_backend_init();
    return true;
  }();
  static_cast<void>(started);
}

// libllama's handle of the GPU that computes; null if none does.
Result<ggml_backend_dev_t> computing_gpu(const EngineConfig& config) {
  if (config.cpu_computes_in_gpu_memory || (!config.gpu && config.gpu_layers == 0)) {
    return nullptr;
  }
  ggml_backend_reg_t cuda = ggml_backend_reg_by_name("CUDA");
  if (cuda == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "engine.gpu or engine.gpu_layers is set, but this build's libllama computes on "
                 "the CPU only: build with `./dev build cuda`, where CUDA's compiler is"};
  }
  if (const size_t gpus = ggml_backend_reg_dev_count(cuda); config.cuda.device >= gpus) {
    return Error{ErrorCode::kUnsupported, "no GPU " + std::to_string(config.cuda.device) +
                                              ": libllama sees " + std::to_string(gpus) +
                                              "; look at nvidia-smi and CUDA_VISIBLE_DEVICES"};
  }
  return ggml_backend_reg_dev_get(cuda, config.cuda.device);
}

Result<ModelPtr> load_model(const EngineConfig& config, ggml_backend_dev_t gpu) {
  const std::string& path = config.model_path;
  if (std::error_code failed; !std::filesystem::is_regular_file(path, failed)) {
    return Error{ErrorCode::kNotFound, "no such model file: " + path};
  }
  // An empty list, unlike a null one, stops libllama from running big batches on an existing GPU.
  std::array<ggml_backend_dev_t, 2> gpus = {gpu, nullptr};
  llama_model_params params = llama_model_default_params();
  params.devices = gpus.data();
  params.load_mode = config.own_weights ? LLAMA_LOAD_MODE_NONE : params.load_mode;
  params.n_gpu_layers = gpu == nullptr           ? 0
                        : config.gpu_layers == 0 ? kAllLayers
                                                 : static_cast<int32_t>(config.gpu_layers);
  ModelPtr model(llama_model_load_from_file(path.c_str(), params));
  if (model == nullptr) {
    return Error{ErrorCode::kCorrupt,
                 "cannot load the model " + path +
                     (gpu == nullptr ? "" : ": it is broken, or the GPU has no memory for it")};
  }
  const int32_t layers = llama_model_n_layer(model.get()) + 1;
  if (config.gpu && gpu != nullptr && config.gpu_layers != 0 && params.n_gpu_layers < layers) {
    return Error{ErrorCode::kUnsupported,
                 "engine.gpu_layers is " + std::to_string(config.gpu_layers) +
                     ", but KV in the GPU's memory wants all " + std::to_string(layers) +
                     " layers there: leave it out, or engine.gpu"};
  }
  const auto refuse = [&](const char* why) {
    return Error{ErrorCode::kUnsupported, "cannot serve the model " + path + ": " + why};
  };
  if (llama_model_has_encoder(model.get()) || !llama_model_has_decoder(model.get()) ||
      llama_model_is_diffusion(model.get())) {
    return refuse("it is not a decoder that generates token by token");
  }
  if (llama_model_is_recurrent(model.get()) || llama_model_is_hybrid(model.get())) {
    return refuse("its recurrent state is not rows of KV");
  }
  if (llama_model_n_swa(model.get()) > 0) {
    return refuse("sliding-window attention reuses rows of KV");
  }
  const llama_rope_type rope = llama_model_rope_type(model.get());
  if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ||
      rope == LLAMA_ROPE_TYPE_VISION) {
    return refuse("its positions have several dimensions");
  }
  return model;
}

struct ContextSize {
  uint32_t sequences = 1;
  uint32_t rows = 0;  // Per sequence.
  uint32_t batch_tokens = 0;
};

llama_context_params context_params(const EngineConfig& config, ContextSize size) {
  llama_context_params params = llama_context_default_params();
  params.n_seq_max = size.sequences;
  params.n_ctx = size.sequences * size.rows;
  params.n_batch = size.batch_tokens;
  params.n_ubatch = size.batch_tokens;
  // One row of logits per sequence and step, and those of a step with EveryToken. The default
  // reserves one per token of a batch: 100 MB for a small model.
  params.n_outputs_max = size.sequences + static_cast<uint32_t>(limits::kReadTokensPerStep);
  params.n_threads = static_cast<int32_t>(config.threads);
  params.n_threads_batch = static_cast<int32_t>(config.threads);
  params.type_k = config.kv_type == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
  params.type_v = params.type_k;
  // Without flash attention, V is transposed and its rows are not contiguous. With one stream per
  // sequence, steps of many sequences are several times faster than with one shared stream, and
  // each sequence has its own rows.
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.kv_unified = false;
  params.offload_kqv = config.gpu;
  params.no_perf = true;
  return params;
}

Result<ContextPtr> make_context(llama_model& model, llama_context_params params) {
  // We pool the tokens' hidden states ourselves, because a prompt is computed in several steps.
  if (names_pooling(model)) {
    params.pooling_type = LLAMA_POOLING_TYPE_NONE;
  }
  ContextPtr context(llama_init_from_model(&model, params));
  if (context == nullptr) {
    return Error{ErrorCode::kUnsupported, "cannot make a context of " +
                                              std::to_string(params.n_ctx) +
                                              " tokens: not enough memory, or the model cannot "
                                              "use flash attention with this kv_type"};
  }
  return context;
}

// Runs one token in a small, separate context, to learn this model's KV rows before the real
// context is sized.
Result<KvLayout> probe_layout(llama_model& model, const EngineConfig& config) {
  PDJOB_TRY(const ContextPtr context,
            make_context(model, context_params(config, {1, kProbeTokens, 1})));
  Batch batch(1);
  batch.add(0, 0, SequenceId{0}, false);
  if (llama_decode(context.get(), batch.inner()) != 0) {
    return Error{ErrorCode::kUnsupported, "the model cannot run a token"};
  }
  PDJOB_TRY(KvLayout layout, read_layout(context.get()));
  if (!config.gpu && !layout.in_host_memory) {
    return Error{ErrorCode::kUnsupported, "libllama keeps this model's KV out of host memory"};
  }
  return layout;
}

class LlamaEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(EngineConfig config);
  ~LlamaEngine() override = default;

  const ModelFacts& facts() const override { return facts_; }
  const EngineConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return *vocabulary_; }
  const KvRegion& kv_region(SequenceId sequence) const override {
    return regions_[index(sequence)];
  }

  Status step(std::span<const StepItem> items) override;
  LendingReport lending() const override { return threads_.lending(); }
  std::span<const float> logits(SequenceId sequence) const override;
  std::span<const float> logits_at(SequenceId sequence, uint32_t index) const override;
  std::span<const float> hidden_at(SequenceId sequence, uint32_t index) const override;
  uint32_t length(SequenceId sequence) const override { return lengths_[index(sequence)]; }
  Status reserve(SequenceId sequence, uint32_t rows) override;
  Status fork(SequenceId from, SequenceId to) override;
  void clear(SequenceId sequence) override;
  void trim(SequenceId sequence, uint32_t rows) override;

 private:
  LlamaEngine(EngineConfig config, ModelPtr model, KvLayout layout)
      : config_(std::move(config)),
        layout_(std::move(layout)),
        model_(std::move(model)),
        vocabulary_(std::make_unique<LlamaVocabulary>(model_.get())),
        threads_(config_.threads, std::exchange(config_.threads_fd, -1)),
        lengths_(config_.sequences, 0),
        outputs_(config_.sequences, kNoOutput),
        every_(config_.sequences),
        batch_(config_.batch_tokens) {}

  Status make_threads_and_context(ggml_backend_dev_t gpu);
  Status find_windows();
  Status share_windows();
  Status warm_up();
  Status fill_batch(std::span<const StepItem> items);
  Status explain(int32_t code, std::span<const StepItem> items);
  int32_t output_at(SequenceId sequence, uint32_t index, EveryToken what) const;
  size_t index(SequenceId sequence) const {
    PDJOB_CHECK(sequence.value < config_.sequences, sequence);
    return sequence.value;
  }

  static constexpr int32_t kNoOutput = -1;

  EngineConfig config_;
  KvLayout layout_;
  ModelFacts facts_;
  // In order of construction: each member uses the ones before it. The KV memory is destroyed after
  // the context that has its buffers there.
  ModelPtr model_;
  std::unique_ptr<LlamaVocabulary> vocabulary_;
  std::vector<SealedMemory> shared_;
  std::unique_ptr<GpuKv> gpu_kv_;  // Only with config_.gpu.
  LlamaThreads threads_;
  ContextPtr context_;
  std::vector<KvRegion> regions_;
  std::vector<uint32_t> lengths_;
  // By sequence: index of its last token in the last batch, if it wanted logits.
  std::vector<int32_t> outputs_;
  // By sequence: its tokens in the last batch, if it wanted outputs of each.
  struct EveryOutput {
    EveryToken what = EveryToken::kNothing;
    int32_t first = 0;  // Index in the batch.
    uint32_t count = 0;
  };
  std::vector<EveryOutput> every_;
  Batch batch_;
};

Result<std::unique_ptr<Engine>> LlamaEngine::open(EngineConfig config) {
  // CpuKernels, PageAlignedBuffers and GpuKv::Placement change globals of ggml.
  static std::mutex opening;
  const std::lock_guard lock(opening);
  PDJOB_TRY_STATUS(choose_cpu_kernels(config.cpu));
  start_library();
  PDJOB_TRY(const ggml_backend_dev_t gpu, computing_gpu(config));
  PDJOB_TRY(ModelPtr model, load_model(config, gpu));
  PDJOB_TRY(KvLayout layout, probe_layout(*model, config));
  config.tokens_per_sequence = round_up_rows(config.tokens_per_sequence, layout.row_bytes);
  PDJOB_TRY(ModelFacts facts, read_facts(*model, layout, config));
  log::info("libllama's kernels for the CPU use " + cpu_instructions());
  std::unique_ptr<LlamaEngine> engine(
      new LlamaEngine(std::move(config), std::move(model), std::move(layout)));
  engine->facts_ = std::move(facts);
  PDJOB_TRY_STATUS(engine->make_threads_and_context(gpu));
  PDJOB_TRY_STATUS(engine->find_windows());
  PDJOB_TRY_STATUS(engine->share_windows());
  PDJOB_TRY_STATUS(engine->warm_up());
  return std::unique_ptr<Engine>(std::move(engine));
}

Status LlamaEngine::make_threads_and_context(ggml_backend_dev_t gpu) {
  const llama_context_params params = context_params(
      config_, {config_.sequences, config_.tokens_per_sequence, config_.batch_tokens});
  if (config_.gpu) {
    PDJOB_TRY(gpu_kv_, GpuKv::open(config_.cuda.library, config_.cuda.device,
                                   {.sequences = config_.sequences,
                                    .rows = config_.tokens_per_sequence,
                                    .row_bytes = layout_.row_bytes}));
    const GpuKv::Placement placement(*gpu_kv_, gpu == nullptr ? ggml_backend_cpu_buffer_type()
                                                              : ggml_backend_dev_buffer_type(gpu));
    PDJOB_TRY(context_, make_context(*model_, params));
  } else if (config_.shared_kv) {
    const PageAlignedBuffers buffers;
    PDJOB_TRY(context_, make_context(*model_, params));
  } else {
    PDJOB_TRY(context_, make_context(*model_, params));
  }
  PDJOB_CHECK(llama_n_ctx_seq(context_.get()) == config_.tokens_per_sequence);
  return threads_.attach(*context_);
}

// Places a row in each sequence to find where its windows begin.
Status LlamaEngine::find_windows() {
  for (uint32_t each = 0; each < config_.sequences; ++each) {
    const SequenceId sequence{each};
    PDJOB_TRY(const std::vector<std::byte*> bases,
              place_rows(context_.get(), layout_, sequence, 1));
    clear(sequence);
    KvRegion& region = regions_.emplace_back();
    region.rows_max = config_.tokens_per_sequence;
    for (size_t window = 0; window < bases.size(); ++window) {
      region.windows.push_back({bases[window], 0, layout_.row_bytes[window]});
    }
  }
  return ok();
}

// Shares the KV memory that a prefill worker on this machine may write.
Status LlamaEngine::share_windows() {
  if (config_.gpu) {
    return gpu_kv_->share_windows(regions_);
  }
  if (!config_.shared_kv) {
    return ok();
  }
  auto shared = engine::share_windows(regions_);
  if (shared.has_value()) {
    shared_ = std::move(*shared);
  } else {
    config_.shared_kv = false;
    log::warn("KV memory is private, so transfers on this machine cost a copy more: " +
              shared.error().message);
  }
  return ok();
}

// Runs one token. That reads all weights, so that the first request does not wait for the disk.
Status LlamaEngine::warm_up() {
  const Token token = 0;
  const StepItem item{SequenceId{0}, {&token, 1}, true};
  PDJOB_TRY_STATUS(step({&item, 1}));
  clear(SequenceId{0});
  return ok();
}

Status LlamaEngine::fill_batch(std::span<const StepItem> items) {
  batch_.clear();
  std::fill(outputs_.begin(), outputs_.end(), kNoOutput);
  std::fill(every_.begin(), every_.end(), EveryOutput{});
  // With hidden states, the library makes every token of the batch an output.
  const bool hidden = std::ranges::any_of(
      items, [](const StepItem& item) { return item.every == EveryToken::kHidden; });
  llama_set_embeddings(context_.get(), hidden);
  for (size_t each = 0; each < items.size(); ++each) {
    const StepItem& item = items[each];
    PDJOB_CHECK(!item.tokens.empty() && (each == 0 || items[each - 1].sequence < item.sequence));
    PDJOB_CHECK(batch_.size() + item.tokens.size() <= config_.batch_tokens, item.tokens.size());
    const uint32_t length = lengths_[index(item.sequence)];
    if (item.tokens.size() > config_.tokens_per_sequence - length) {
      return Error{ErrorCode::kOverloaded, "the sequence has no rows left"};
    }
    for (size_t at = 0; at < item.tokens.size(); ++at) {
      const Token token = item.tokens[at];
      if (token < 0 || static_cast<uint32_t>(token) >= facts_.vocabulary) {
        return Error{ErrorCode::kInvalidArgument, "no such token: " + std::to_string(token)};
      }
      const bool last = at + 1 == item.tokens.size();
      batch_.add(token, length + static_cast<uint32_t>(at), item.sequence,
                 (last && item.wants_logits) || hidden || item.every != EveryToken::kNothing);
    }
    every_[item.sequence.value] = {
        .what = item.every,
        .first = batch_.size() - static_cast<int32_t>(item.tokens.size()),
        .count = static_cast<uint32_t>(item.tokens.size())};
    if (item.wants_logits) {
      outputs_[item.sequence.value] = batch_.size() - 1;
    }
  }
  return ok();
}

Status LlamaEngine::step(std::span<const StepItem> items) {
  PDJOB_TRY_STATUS(fill_batch(items));
  threads_.begin_step();
  const int32_t code = llama_decode(context_.get(), batch_.inner());
  // A GPU may still be computing. The rows must be final, because a transfer may move them at once.
  llama_synchronize(context_.get());
  threads_.end_step();
  if (code != 0) {
    return explain(code, items);
  }
  for (const StepItem& item : items) {
    uint32_t& length = lengths_[item.sequence.value];
    length += static_cast<uint32_t>(item.tokens.size());
#ifndef NDEBUG
    PDJOB_CHECK(rows_in_order(context_.get(), layout_, item.sequence, length), item.sequence);
#endif
  }
  return ok();
}

// A failed step may have run in part, so the sequences' lengths are read back from libllama.
Status LlamaEngine::explain(int32_t code, std::span<const StepItem> items) {
  std::fill(outputs_.begin(), outputs_.end(), kNoOutput);
  std::fill(every_.begin(), every_.end(), EveryOutput{});
  for (const StepItem& item : items) {
    const llama_pos last = llama_memory_seq_pos_max(llama_get_memory(context_.get()),
                                                    static_cast<llama_seq_id>(item.sequence.value));
    lengths_[item.sequence.value] = static_cast<uint32_t>(last + 1);
  }
  if (code == 1) {
    return Error{ErrorCode::kOverloaded, "the engine has no cells for this step"};
  }
  return Error{ErrorCode::kInternal, "the engine step failed with " + std::to_string(code)};
}

std::span<const float> LlamaEngine::logits(SequenceId sequence) const {
  const int32_t output = outputs_[index(sequence)];
  PDJOB_CHECK(output != kNoOutput, sequence);
  const float* row = llama_get_logits_ith(context_.get(), output);
  PDJOB_CHECK(row != nullptr, sequence);
  return {row, facts_.vocabulary};
}

int32_t LlamaEngine::output_at(SequenceId sequence, uint32_t index, EveryToken what) const {
  const EveryOutput& every = every_[this->index(sequence)];
  PDJOB_CHECK(every.what == what && index < every.count, sequence, index);
  return every.first + static_cast<int32_t>(index);
}

std::span<const float> LlamaEngine::logits_at(SequenceId sequence, uint32_t index) const {
  const float* row =
      llama_get_logits_ith(context_.get(), output_at(sequence, index, EveryToken::kLogits));
  PDJOB_CHECK(row != nullptr, sequence, index);
  return {row, facts_.vocabulary};
}

std::span<const float> LlamaEngine::hidden_at(SequenceId sequence, uint32_t index) const {
  const float* row =
      llama_get_embeddings_ith(context_.get(), output_at(sequence, index, EveryToken::kHidden));
  PDJOB_CHECK(row != nullptr, sequence, index);
  return {row, facts_.embedding_dim};
}

Status LlamaEngine::reserve(SequenceId sequence, uint32_t rows) {
  PDJOB_CHECK(rows > length(sequence), sequence, length(sequence), rows);
  if (rows > config_.tokens_per_sequence) {
    return Error{ErrorCode::kOverloaded, "the sequence has no rows left"};
  }
  // It drops the rows that are there, and places them anew where they were.
  const auto bases = place_rows(context_.get(), layout_, sequence, rows);
  if (!bases.has_value()) {
    clear(sequence);
    return bases.error();
  }
  PDJOB_CHECK(bases->front() == kv_region(sequence).windows.front().base, sequence);
  lengths_[sequence.value] = rows;
  return ok();
}

Status LlamaEngine::fork(SequenceId from, SequenceId to) {
  const uint32_t rows = length(from);
  PDJOB_TRY_STATUS(reserve(to, rows));
  if (config_.gpu) {
    return gpu_kv_->copy_rows(kv_region(from), kv_region(to), rows);
  }
  copy_rows(kv_region(from), kv_region(to), rows);
  return ok();
}

void LlamaEngine::clear(SequenceId sequence) {
  llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(sequence.value),
                      -1, -1);
  lengths_[index(sequence)] = 0;
}

// The library searches for free cells from the first one that it removed. So the next row's place
// follows its position, also in GPU memory.
void LlamaEngine::trim(SequenceId sequence, uint32_t rows) {
  PDJOB_CHECK(rows <= length(sequence), sequence, rows, length(sequence));
  const bool removed = llama_memory_seq_rm(llama_get_memory(context_.get()),
                                           static_cast<llama_seq_id>(sequence.value),
                                           static_cast<llama_pos>(rows), -1);
  PDJOB_CHECK(removed, sequence, rows);
  lengths_[sequence.value] = rows;
}

}  // namespace

Result<std::unique_ptr<Engine>> open_llama_engine(const EngineConfig& config) {
  try {
    return LlamaEngine::open(config);
  } catch (const std::exception& thrown) {
    return Error{ErrorCode::kUnsupported,
                 "cannot open the model " + config.model_path + ": " + thrown.what()};
  }
}

}  // namespace pdjob::engine
