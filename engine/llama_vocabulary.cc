#include "engine/llama_vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include <chat.h>
#include <llama.h>

#include "common/log.h"
#include "engine/grammar/tool_calls.h"
#include "engine/tool_prompt.h"

namespace pdjob::engine {
namespace {

// Marks the end of a message that the output continues. Not a word of any client: the last one in
// the prompt is the mark.
constexpr std::string_view kContinued = "pdjob_continued_here";

}  // namespace

LlamaVocabulary::LlamaVocabulary(const llama_model* model)
    : vocab_(llama_model_get_vocab(model)),
      size_(static_cast<uint32_t>(llama_vocab_n_tokens(vocab_))) {
  for (uint32_t token = 0; token < size_; ++token) {
    // The token's spelling in the file is never shorter than its bytes.
    const char* spelled = llama_vocab_get_text(vocab_, static_cast<llama_token>(token));
    piece_bytes_max_ = std::max(piece_bytes_max_, std::strlen(spelled));
    if (is_end(static_cast<Token>(token))) {
      end_tokens_.push_back(static_cast<Token>(token));
    }
  }
  try {
    templates_.reset(common_chat_templates_init(model, "").release());
  } catch (const std::exception& thrown) {
    template_error_ = thrown.what();
  }
  if (templates_ != nullptr) {
    path_ = find_out_path();
    template_knows_tools_ = find_out_whether_template_knows_tools();
  }
}

LlamaVocabulary::~LlamaVocabulary() = default;

void LlamaVocabulary::FreeTemplates::operator()(common_chat_templates* templates) const {
  common_chat_templates_free(templates);
}

std::vector<Token> LlamaVocabulary::tokenize(std::string_view text, bool add_special,
                                             bool parse_special) const {
  // A token is rarely shorter than two bytes. If the guess is too small, llama_tokenize returns the
  // true size, negated.
  std::vector<Token> tokens(text.size() / 2 + 8);
  const auto run = [&] {
    return llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                          static_cast<int32_t>(tokens.size()), add_special, parse_special);
  };
  try {
    int32_t count = run();
    if (count < 0 && count != INT32_MIN) {
      tokens.resize(static_cast<size_t>(-count));
      count = run();
    }
    tokens.resize(static_cast<size_t>(std::max(count, 0)));
  } catch (const std::exception& thrown) {
    log::warn(std::string("tokenizer: ") + thrown.what());
    tokens.clear();
  }
  return tokens;
}

std::string LlamaVocabulary::piece(Token token, bool render_special) const {
  if (!has(token)) {
    return "";
  }
  std::array<char, 64> small;
  const int32_t length =
      llama_token_to_piece(vocab_, token, small.data(), small.size(), 0, render_special);
  if (length >= 0) {
    return {small.data(), static_cast<size_t>(length)};
  }
  std::string large(static_cast<size_t>(-length), '\0');
  llama_token_to_piece(vocab_, token, large.data(), -length, 0, render_special);
  return large;
}

// Throws what the library throws.
std::string LlamaVocabulary::render(std::span<const ChatMessage> messages,
                                    std::span<const ChatTool> tools, const ChatFilling& filling,
                                    Path path) const {
  common_chat_templates_inputs inputs;
  inputs.use_jinja = true;
  inputs.add_generation_prompt = filling.opens_turn;
  for (const auto& [name, value] : filling.values) {
    inputs.chat_template_kwargs[name] = value;
  }
  // Without this, the template writes BOS and the tokenizer adds it again.
  inputs.add_bos = llama_vocab_get_add_bos(vocab_);
  inputs.add_eos = llama_vocab_get_add_eos(vocab_);
  for (const ChatMessage& message : messages) {
    common_chat_msg& out = inputs.messages.emplace_back();
    out.role = message.role;
    out.content = message.content;
    out.reasoning_content = message.reasoning;
    out.tool_call_id = message.tool_call_id;
    out.tool_name = message.tool_name;
    for (const ChatToolCall& call : message.tool_calls) {
      out.tool_calls.push_back({.name = call.name, .arguments = call.arguments, .id = call.id});
    }
  }
  for (const ChatTool& tool : tools) {
    inputs.tools.push_back(
        {.name = tool.name, .description = tool.description, .parameters = tool.parameters});
  }
  // Otherwise the library would make a grammar of the tools. Its own compiler of schemas is not
  // safe with a client's schema; engine/grammar is.
  inputs.force_pure_content = !tools.empty() || path == Path::kTemplate;
  return common_chat_templates_apply(templates_.get(), inputs).prompt;
}

// Compares prompts of conversations that have all that a message may have, beside calls. An
// analysis that fails has nothing to add: the library cannot analyse each template.
LlamaVocabulary::Path LlamaVocabulary::find_out_path() const {
  const ChatMessage question = {.role = "user", .content = "pdjob_question"};
  const std::vector<std::vector<ChatMessage>> chats = {
      {question},
      {{.role = "system", .content = "pdjob_system"}, question},
      {{.role = "developer", .content = "pdjob_system"},
       question,
       {.role = "assistant", .content = "pdjob_answer", .reasoning = "pdjob_thought"},
       question},
  };
  const auto prompt_of = [this](const std::vector<ChatMessage>& chat,
                                Path path) -> std::optional<std::string> {
    try {
      return render(chat, {}, {}, path);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  };
  const bool same = std::ranges::all_of(chats, [&](const std::vector<ChatMessage>& chat) {
    const auto analysed = prompt_of(chat, Path::kAnalysis);
    return !analysed || analysed == prompt_of(chat, Path::kTemplate);
  });
  return same ? Path::kTemplate : Path::kAnalysis;
}

bool LlamaVocabulary::find_out_whether_template_knows_tools() const {
  const std::string name = "pdjob_probe";
  const std::vector<ChatTool> tools = {
      {.name = name,
       .description = "pdjob_description",
       .parameters = R"({"type":"object","properties":{"pdjob_property":{"type":"string"}}})"}};
  const std::vector<ChatMessage> messages = {
      {.role = "user", .content = "pdjob_question"},
      {.role = "assistant",
       .content = "",
       .tool_calls = {{.id = "call00001", .name = name, .arguments = R"({"pdjob_property":"a"})"}}},
      {.role = "tool", .content = "pdjob_result", .tool_call_id = "call00001"}};
  std::string begin(kCallOpen);
  begin.append(kCallName).append(name).append(kCallArguments).append("{");
  try {
    const std::string prompt = render(messages, tools, {}, path_);
    return std::ranges::all_of(
        std::array<std::string_view, 5>{"pdjob_description", "pdjob_property", "pdjob_result",
                                        begin, kCallClose},
        [&](std::string_view part) { return prompt.find(part) != std::string::npos; });
  } catch (const std::exception&) {
    return false;
  }
}

Result<std::string> LlamaVocabulary::apply_chat_template(std::span<const ChatMessage> messages,
                                                         std::span<const ChatTool> tools,
                                                         const ChatFilling& filling) const {
  if (templates_ == nullptr) {
    return Error{ErrorCode::kUnsupported, "the model's chat template: " + template_error_};
  }
  try {
    std::vector<ChatMessage> chat = template_knows_tools_
                                        ? std::vector(messages.begin(), messages.end())
                                        : tools_as_text(messages, tools);
    if (!template_knows_tools_) {
      tools = {};
    }
    if (filling.continues_last) {
      chat.back().content += kContinued;
    }
    std::string prompt = render(chat, tools, filling, path_);
    if (filling.continues_last) {
      const size_t end = prompt.rfind(kContinued);
      if (end == std::string::npos) {
        return Error{ErrorCode::kInvalidArgument,
                     "the model's chat template does not write the last message, so it cannot be "
                     "continued"};
      }
      prompt.resize(end);
    }
    return prompt;
  } catch (const std::exception& thrown) {
    // Templates refuse messages that their model was not trained on, such as a second system
    // message.
    return Error{ErrorCode::kInvalidArgument,
                 std::string("the model's chat template refuses these messages: ") + thrown.what()};
  }
}

bool LlamaVocabulary::is_end(Token token) const {
  return has(token) && llama_vocab_is_eog(vocab_, token);
}

Vocabulary::Bounds LlamaVocabulary::bounds() const {
  const auto text_of = [this](Token token) {
    return has(token) ? piece(token, /*render_special=*/true) : std::string();
  };
  return {.begin = text_of(llama_vocab_bos(vocab_)), .end = text_of(llama_vocab_eos(vocab_))};
}

bool LlamaVocabulary::is_control(Token token) const {
  return has(token) && llama_vocab_is_control(vocab_, token);
}

}  // namespace pdjob::engine
