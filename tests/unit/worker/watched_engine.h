// The fake engine with a watched tokenizer. Tests see how many bytes it got, and may hold it back.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "engine/engine.h"

namespace pdjob::worker {

class WatchedVocabulary final : public engine::Vocabulary {
 public:
  explicit WatchedVocabulary(const engine::Vocabulary& watched) : watched_(watched) {}

  // From now on the tokenizer blocks at a text that begins with "wait", until open() is called.
  void close() { closed_ = true; }
  void open() { gate_.close(); }
  size_t bytes_tokenized() const { return bytes_; }

  std::vector<Token> tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override {
    bytes_ += text.size();
    if (closed_ && text.starts_with("wait")) {
      std::vector<int> nothing;
      gate_.wait_and_drain(nothing, real_now() + std::chrono::seconds(60));
    }
    return watched_.tokenize(text, add_special, parse_special);
  }
  std::string piece(Token token, bool render_special) const override {
    return watched_.piece(token, render_special);
  }
  size_t piece_bytes_max() const override { return watched_.piece_bytes_max(); }
  Result<std::string> apply_chat_template(std::span<const engine::ChatMessage> messages,
                                          std::span<const engine::ChatTool> tools,
                                          const engine::ChatFilling& filling) const override {
    return watched_.apply_chat_template(messages, tools, filling);
  }
  bool is_end(Token token) const override { return watched_.is_end(token); }
  std::span<const Token> end_tokens() const override { return watched_.end_tokens(); }
  bool is_control(Token token) const override { return watched_.is_control(token); }
  Bounds bounds() const override { return watched_.bounds(); }
  uint32_t size() const override { return watched_.size(); }

 private:
  const engine::Vocabulary& watched_;
  std::atomic<bool> closed_ = false;
  mutable std::atomic<size_t> bytes_ = 0;
  mutable Channel<int> gate_{1};
};

class WatchedEngine final : public engine::Engine {
 public:
  // `tokens`: the vocabulary's size that it claims; 0 means its own.
  explicit WatchedEngine(std::unique_ptr<engine::Engine> watched, uint32_t tokens = 0)
      : watched_(std::move(watched)),
        facts_(watched_->facts()),
        vocabulary_(watched_->vocabulary()) {
    facts_.vocabulary = tokens > 0 ? tokens : facts_.vocabulary;
  }

  WatchedVocabulary& watched() { return vocabulary_; }

  const engine::ModelFacts& facts() const override { return facts_; }
  const engine::EngineConfig& config() const override { return watched_->config(); }
  const engine::Vocabulary& vocabulary() const override { return vocabulary_; }
  const engine::KvRegion& kv_region(SequenceId sequence) const override {
    return watched_->kv_region(sequence);
  }
  Status step(std::span<const engine::StepItem> items) override { return watched_->step(items); }
  std::span<const float> logits(SequenceId sequence) const override {
    return watched_->logits(sequence);
  }
  std::span<const float> logits_at(SequenceId sequence, uint32_t index) const override {
    return watched_->logits_at(sequence, index);
  }
  std::span<const float> hidden_at(SequenceId sequence, uint32_t index) const override {
    return watched_->hidden_at(sequence, index);
  }
  uint32_t length(SequenceId sequence) const override { return watched_->length(sequence); }
  Status reserve(SequenceId sequence, uint32_t rows) override {
    return watched_->reserve(sequence, rows);
  }
  Status fork(SequenceId from, SequenceId to) override { return watched_->fork(from, to); }
  void clear(SequenceId sequence) override { watched_->clear(sequence); }
  void trim(SequenceId sequence, uint32_t rows) override { watched_->trim(sequence, rows); }

 private:
  const std::unique_ptr<engine::Engine> watched_;
  engine::ModelFacts facts_;
  WatchedVocabulary vocabulary_;
};

}  // namespace pdjob::worker
