// The text side of a GGUF model: its tokenizer, and its chat template, run as Jinja. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

struct llama_model;
struct llama_vocab;
struct common_chat_templates;

namespace pdjob::engine {

class LlamaVocabulary final : public Vocabulary {
 public:
  // `model` must outlive this.
  explicit LlamaVocabulary(const llama_model* model);
  ~LlamaVocabulary() override;

  std::vector<Token> tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override;
  std::string piece(Token token, bool render_special) const override;
  size_t piece_bytes_max() const override { return piece_bytes_max_; }
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          std::span<const ChatTool> tools,
                                          const ChatFilling& filling) const override;
  bool is_end(Token token) const override;
  std::span<const Token> end_tokens() const override { return end_tokens_; }
  bool is_control(Token token) const override;
  Bounds bounds() const override;
  uint32_t size() const override { return size_; }

 private:
  struct FreeTemplates {
    void operator()(common_chat_templates* templates) const;
  };

  // How much of the library a prompt goes through.
  enum class Path {
    kTemplate,  // The template alone.
    kAnalysis,  // What the library knows of some templates, and an analysis of the others.
  };
  std::string render(std::span<const ChatMessage> messages, std::span<const ChatTool> tools,
                     const ChatFilling& filling, Path path) const;
  Path find_out_path() const;
  bool find_out_whether_template_knows_tools() const;
  bool has(Token token) const { return token >= 0 && static_cast<uint32_t>(token) < size_; }

  const llama_vocab* vocab_;
  uint32_t size_;
  size_t piece_bytes_max_ = 1;
  std::vector<Token> end_tokens_;
  // Null if the model's own template is not valid Jinja.
  std::unique_ptr<common_chat_templates, FreeTemplates> templates_;
  std::string template_error_;
  // Of prompts without tools. The analysis takes milliseconds for each prompt, so it is left out if
  // it changes nothing.
  Path path_ = Path::kAnalysis;
  // True if the template writes tools, and calls in the form of grammar/tool_calls.h. Otherwise
  // they are put into the messages as text.
  bool template_knows_tools_ = false;
};

}  // namespace pdjob::engine
