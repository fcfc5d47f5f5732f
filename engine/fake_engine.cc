#include "engine/fake_engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include <sys/mman.h>
#include <xxhash.h>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "engine/shared_kv.h"
#include "engine/tool_prompt.h"
#include "gpu/gpu.h"

namespace pdjob::engine {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kWindows = 2 * kLayers;
constexpr uint32_t kRowBytes = 64;
constexpr uint32_t kRowsUnit = 4096 / kRowBytes;  // A window fills whole pages.
constexpr std::string_view kStartText = "<|im_start|>";
constexpr std::string_view kEndText = "<|im_end|>";
// On average, one in this many tokens ends the text.
constexpr uint64_t kEndEvery = 256;

class FakeVocabulary final : public Vocabulary {
 public:
  std::vector<Token> tokenize(std::string_view text, bool /*add_special*/,
                              bool parse_special) const override {
    std::vector<Token> tokens;
    while (!text.empty()) {
      if (parse_special && text.starts_with(kStartText)) {
        tokens.push_back(kFakeStart);
        text.remove_prefix(kStartText.size());
      } else if (parse_special && text.starts_with(kEndText)) {
        tokens.push_back(kFakeEnd);
        text.remove_prefix(kEndText.size());
      } else {
        tokens.push_back(static_cast<uint8_t>(text.front()));
        text.remove_prefix(1);
      }
    }
    return tokens;
  }

  std::string piece(Token token, bool render_special) const override {
    if (token >= 0 && token < kFakeStart) {
      return {static_cast<char>(token)};
    }
    if (!render_special) {
      return "";
    }
    return std::string(token == kFakeStart ? kStartText : token == kFakeEnd ? kEndText : "");
  }

  size_t piece_bytes_max() const override { return kStartText.size(); }

  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          std::span<const ChatTool> tools,
                                          const ChatFilling& filling) const override {
    std::string prompt;
    size_t end = 0;  // Of the last content.
    for (const ChatMessage& message : tools_as_text(messages, tools)) {
      prompt.append(kStartText).append(message.role).append("\n").append(message.content);
      end = prompt.size();
      prompt.append(kEndText).append("\n");
    }
    if (filling.opens_turn) {
      prompt.append(kStartText).append("assistant\n");
    }
    return filling.continues_last ? prompt.substr(0, end) : prompt;
  }

  bool is_end(Token token) const override { return token == kFakeEnd; }
  std::span<const Token> end_tokens() const override { return {&kFakeEnd, 1}; }
  bool is_control(Token token) const override { return token == kFakeStart || token == kFakeEnd; }
  Bounds bounds() const override {
    return {.begin = std::string(kStartText), .end = std::string(kEndText)};
  }
  uint32_t size() const override { return kFakeVocabulary; }
};

struct Unmap {
  size_t bytes = 0;
  void operator()(std::byte* pages) const { munmap(pages, bytes); }
};

class FakeEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineConfig& config);

  const ModelFacts& facts() const override { return facts_; }
  const EngineConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const KvRegion& kv_region(SequenceId sequence) const override {
    return regions_[index(sequence)];
  }

  Status step(std::span<const StepItem> items) override;
  std::span<const float> logits(SequenceId sequence) const override {
    PDJOB_CHECK(!logits_[index(sequence)].empty(), sequence);
    return logits_[sequence.value];
  }
  std::span<const float> logits_at(SequenceId sequence, uint32_t token) const override {
    return output_at(sequence, token, facts_.vocabulary);
  }
  std::span<const float> hidden_at(SequenceId sequence, uint32_t token) const override {
    return output_at(sequence, token, facts_.embedding_dim);
  }
  uint32_t length(SequenceId sequence) const override { return lengths_[index(sequence)]; }
  Status reserve(SequenceId sequence, uint32_t rows) override;
  Status fork(SequenceId from, SequenceId to) override;
  void clear(SequenceId sequence) override { lengths_[index(sequence)] = 0; }
  void trim(SequenceId sequence, uint32_t rows) override {
    PDJOB_CHECK(rows <= length(sequence), sequence, rows);
    lengths_[sequence.value] = rows;
  }

 private:
  explicit FakeEngine(const EngineConfig& config);

  size_t index(SequenceId sequence) const {
    PDJOB_CHECK(sequence.value < config_.sequences, sequence);
    return sequence.value;
  }
  Status make_windows();
  Status make_windows_in_gpu();
  void add_regions(std::byte* base);
  void copy(std::byte* to, const std::byte* from, size_t bytes) const;
  Status check(std::span<const StepItem> items) const;
  // Aborts or hangs on `token` if so configured, for tests.
  void misbehave_on(Token token) const;
  void write_row(SequenceId sequence, uint32_t row, Token token);
  uint64_t hash_rows(SequenceId sequence) const;
  void compute_logits(SequenceId sequence, std::vector<float>& out) const;
  void compute_hidden(SequenceId sequence, std::vector<float>& out) const;
  std::span<const float> output_at(SequenceId sequence, uint32_t token, size_t floats) const {
    const auto& outputs = every_[index(sequence)];
    PDJOB_CHECK(token < outputs.size() && outputs[token].size() == floats, sequence, token);
    return outputs[token];
  }

  EngineConfig config_;
  ModelFacts facts_;
  FakeVocabulary vocabulary_;
  std::vector<SealedMemory> shared_;
  std::unique_ptr<std::byte, Unmap> memory_;  // All windows of all sequences;
  std::unique_ptr<Gpu> gpu_;                  // or, with config_.gpu, in its memory.
  GpuMemory gpu_memory_;
  std::vector<KvRegion> regions_;
  std::vector<uint32_t> lengths_;
  std::vector<std::vector<float>> logits_;  // By sequence; empty if not wanted in the last step.
  // By sequence and token of its last item; empty if not wanted.
  std::vector<std::vector<std::vector<float>>> every_;
};

FakeEngine::FakeEngine(const EngineConfig& config)
    : config_(config),
      lengths_(config.sequences, 0),
      logits_(config.sequences),
      every_(config.sequences) {
  config_.tokens_per_sequence =
      (config.tokens_per_sequence + kRowsUnit - 1) / kRowsUnit * kRowsUnit;
  facts_.name = config.served_name.empty() ? "fake" : config.served_name;
  facts_.digest = config.own_weights
                      ? "fake " + std::filesystem::path(config.model_path).filename().string()
                      : "fake";
  facts_.kv_type = to_string(config.kv_type);
  facts_.layers = kLayers;
  facts_.heads = 1;
  facts_.kv_heads = 1;
  facts_.head_dim = kRowBytes;
  facts_.vocabulary = kFakeVocabulary;
  facts_.context_trained = config_.tokens_per_sequence;
  facts_.rope = "none";
  facts_.kv_bytes_per_token = uint64_t{kWindows} * kRowBytes;
  facts_.embedding_dim = kFakeEmbeddingDim;
  facts_.library = "fake";
}

Result<std::unique_ptr<Engine>> FakeEngine::open(const EngineConfig& config) {
  std::unique_ptr<FakeEngine> engine(new FakeEngine(config));
  if (config.gpu) {
    PDJOB_TRY_STATUS(engine->make_windows_in_gpu());
    return std::unique_ptr<Engine>(std::move(engine));
  }
  PDJOB_TRY_STATUS(engine->make_windows());
  if (config.shared_kv) {
    auto shared = share_windows(engine->regions_);
    if (shared.has_value()) {
      engine->shared_ = std::move(*shared);
    } else {
      engine->config_.shared_kv = false;
      log::warn("KV memory is private: " + shared.error().message);
    }
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

Status FakeEngine::make_windows() {
  const size_t window_bytes = size_t{config_.tokens_per_sequence} * kRowBytes;
  const size_t bytes = size_t{config_.sequences} * kWindows * window_bytes;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return Error{ErrorCode::kUnavailable, "no memory for the fake engine's KV"};
  }
  memory_ = {static_cast<std::byte*>(pages), Unmap{bytes}};
  add_regions(memory_.get());
  return ok();
}

Status FakeEngine::make_windows_in_gpu() {
  const uint64_t bytes =
      uint64_t{config_.sequences} * kWindows * config_.tokens_per_sequence * kRowBytes;
  PDJOB_TRY(gpu_, Gpu::open(config_.cuda.library, config_.cuda.device));
  PDJOB_TRY(gpu_memory_, gpu_->allocate(bytes));
  add_regions(gpu_memory_.base());
  for (KvRegion& region : regions_) {
    region.device = config_.cuda.device;
    region.shared_fd = gpu_memory_.fd();
    region.shared_bytes = bytes;
    for (KvWindow& window : region.windows) {
      window.shared_offset = static_cast<uint64_t>(window.base - gpu_memory_.base());
    }
  }
  return ok();
}

void FakeEngine::add_regions(std::byte* base) {
  const size_t window_bytes = size_t{config_.tokens_per_sequence} * kRowBytes;
  for (uint32_t sequence = 0; sequence < config_.sequences; ++sequence) {
    KvRegion& region = regions_.emplace_back();
    region.rows_max = config_.tokens_per_sequence;
    for (uint32_t window = 0; window < kWindows; ++window, base += window_bytes) {
      region.windows.push_back({base, 0, kRowBytes});
    }
  }
}

// Like memcpy, but either end may be in the GPU's memory.
void FakeEngine::copy(std::byte* to, const std::byte* from, size_t bytes) const {
  if (gpu_ == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  const GpuCopy copy{.to = to, .from = from, .bytes = bytes};
  const Status copied = gpu_->copy({&copy, 1});
  PDJOB_CHECK(copied.has_value(), copied.error().message);
}

Status FakeEngine::check(std::span<const StepItem> items) const {
  size_t tokens = 0;
  for (size_t each = 0; each < items.size(); ++each) {
    const StepItem& item = items[each];
    PDJOB_CHECK(!item.tokens.empty() && (each == 0 || items[each - 1].sequence < item.sequence));
    tokens += item.tokens.size();
    PDJOB_CHECK(tokens <= config_.batch_tokens, tokens);
    if (item.tokens.size() > config_.tokens_per_sequence - lengths_[index(item.sequence)]) {
      return Error{ErrorCode::kOverloaded, "the sequence has no rows left"};
    }
    for (const Token token : item.tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= kFakeVocabulary) {
        return Error{ErrorCode::kInvalidArgument, "no such token: " + std::to_string(token)};
      }
    }
  }
  return ok();
}

Status FakeEngine::step(std::span<const StepItem> items) {
  PDJOB_TRY_STATUS(check(items));
  for (std::vector<float>& row : logits_) {
    row.clear();
  }
  for (auto& outputs : every_) {
    outputs.clear();
  }
  if (config_.fake_delay_per_token + config_.fake_delay_per_step > Duration::zero()) {
    const auto tokens = std::transform_reduce(items.begin(), items.end(), size_t{0}, std::plus<>{},
                                              [](const auto& item) { return item.tokens.size(); });
    std::this_thread::sleep_for(config_.fake_delay_per_step +
                                config_.fake_delay_per_token * tokens);
  }
  for (const StepItem& item : items) {
    for (const Token token : item.tokens) {
      misbehave_on(token);
      write_row(item.sequence, lengths_[item.sequence.value]++, token);
      if (item.every == EveryToken::kLogits) {
        compute_logits(item.sequence, every_[item.sequence.value].emplace_back());
      } else if (item.every == EveryToken::kHidden) {
        compute_hidden(item.sequence, every_[item.sequence.value].emplace_back());
      }
    }
    if (item.wants_logits) {
      compute_logits(item.sequence, logits_[item.sequence.value]);
    }
  }
  return ok();
}

void FakeEngine::misbehave_on(Token token) const {
  PDJOB_CHECK(token == 0 || static_cast<uint32_t>(token) != config_.fake_crash_on_token,
              "fake_crash_on_token", token);
  while (token != 0 && static_cast<uint32_t>(token) == config_.fake_hang_on_token) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void FakeEngine::write_row(SequenceId sequence, uint32_t row, Token token) {
  const KvRegion& region = regions_[sequence.value];
  std::array<uint64_t, kRowBytes / sizeof(uint64_t)> content;
  for (uint32_t window = 0; window < kWindows; ++window) {
    Random random(mix(mix(static_cast<uint64_t>(token)) ^ row) + window);
    for (uint64_t& word : content) {
      word = random.next();
    }
    copy(region.windows[window].base + size_t{row} * kRowBytes,
         reinterpret_cast<const std::byte*>(content.data()), kRowBytes);
  }
}

uint64_t FakeEngine::hash_rows(SequenceId sequence) const {
  const size_t bytes = size_t{lengths_[sequence.value]} * kRowBytes;
  uint64_t hash = 0;
  std::vector<std::byte> rows(bytes);
  for (const KvWindow& window : regions_[sequence.value].windows) {
    copy(rows.data(), window.base, bytes);
    hash = XXH3_64bits_withSeed(rows.data(), bytes, hash);
  }
  return hash;
}

// Letters and spaces are likely, other bytes never occur, and occasionally the text ends.
void FakeEngine::compute_logits(SequenceId sequence, std::vector<float>& row) const {
  Random random(hash_rows(sequence));
  row.assign(kFakeVocabulary, -20.0F);
  for (Token letter = 'a'; letter <= 'z'; ++letter) {
    row[letter] = static_cast<float>(8 * random.unit());
  }
  row[' '] = static_cast<float>(9 * random.unit());
  row[kFakeEnd] = random.below(kEndEvery) == 0 ? 12.0F : -12.0F;
}

void FakeEngine::compute_hidden(SequenceId sequence, std::vector<float>& out) const {
  Random random(hash_rows(sequence));
  for (uint32_t each = 0; each < kFakeEmbeddingDim; ++each) {
    out.push_back(static_cast<float>(random.unit() - 0.5));
  }
}

Status FakeEngine::reserve(SequenceId sequence, uint32_t rows) {
  PDJOB_CHECK(rows > length(sequence), sequence, length(sequence), rows);
  if (rows > config_.tokens_per_sequence) {
    return Error{ErrorCode::kOverloaded, "the sequence has no rows left"};
  }
  lengths_[sequence.value] = rows;
  return ok();
}

Status FakeEngine::fork(SequenceId from, SequenceId to) {
  const uint32_t rows = length(from);
  PDJOB_TRY_STATUS(reserve(to, rows));
  for (uint32_t window = 0; window < kWindows; ++window) {
    copy(kv_region(to).windows[window].base, kv_region(from).windows[window].base,
         size_t{rows} * kRowBytes);
  }
  return ok();
}

}  // namespace

Result<std::unique_ptr<Engine>> open_fake_engine(const EngineConfig& config) {
  return FakeEngine::open(config);
}

}  // namespace pdjob::engine
