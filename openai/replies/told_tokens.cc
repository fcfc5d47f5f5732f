#include "openai/replies/told_tokens.h"

#include <algorithm>
#include <charconv>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

constexpr size_t kTokensMax = 1 << 20;
constexpr size_t kModelBytesMax = 64;

// Takes a number off the front.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc();
}

bool take_mark(std::string_view& text, char mark) {
  const bool there = text.starts_with(mark);
  text.remove_prefix(there ? 1 : 0);
  return there;
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Takes ";name=VALUE" off the end; empty: it is not there.
std::string_view take_value(std::string_view& text, std::string_view name) {
  const size_t mark = text.rfind(name);
  if (mark == std::string_view::npos) {
    return {};
  }
  const std::string_view value = text.substr(mark + name.size());
  text = text.substr(0, mark);
  return value;
}

}  // namespace

ToldTokens::Taken ToldTokens::take(std::string_view note) {
  const std::string_view model = take_value(note, ";m=");
  const std::string_view weights = take_value(note, ";w=");
  size_t index = 0;
  size_t start = 0;
  if (!take_number(note, index) || index >= limits::kRequestChoicesMax || !is_hex(model) ||
      model.size() > kModelBytesMax) {
    return Taken::kBad;
  }
  const bool has_start = take_mark(note, '@');
  if (has_start && !take_number(note, start)) {
    return Taken::kBad;
  }
  if (!model.empty() && model != model_) {
    choices_.clear();
    count_ = 0;
    model_ = model;
  }
  if (index >= choices_.size()) {
    choices_.resize(index + 1);
  }
  Choice& choice = choices_[index];
  size_t at = has_start ? start : choice.tokens.size();
  if (at > choice.tokens.size()) {
    return Taken::kGap;
  }
  bool known = !note.empty();
  if (!known && at == choice.tokens.size()) {
    note_weights(choice, at, weights);
  }
  while (!note.empty()) {
    Token token = 0;
    if (!take_mark(note, '.') || !take_number(note, token) || token < 0 || count_ >= kTokensMax) {
      return Taken::kBad;
    }
    if (at == choice.tokens.size() || choice.tokens[at] != token) {
      cut(choice, at);
      choice.tokens.push_back(token);
      count_ += 1;
      if (known) {
        known = false;
        note_weights(choice, at, weights);
      }
    }
    ++at;
  }
  return known ? Taken::kKnown : Taken::kNew;
}

// The tokens from `start` on were made by this version; empty: by the same as before.
void ToldTokens::note_weights(Choice& choice, size_t start, std::string_view version) {
  const bool other = choice.weights.empty() || choice.weights.back().version != version;
  if (!version.empty() && version.size() <= 2 * limits::kWeightVersionBytesMax && is_hex(version) &&
      other) {
    choice.weights.push_back({.version = std::string(version), .start = start});
  }
}

void ToldTokens::cut(Choice& choice, size_t tokens) {
  count_ -= choice.tokens.size() - tokens;
  choice.tokens.resize(tokens);
  std::erase_if(choice.weights,
                [tokens](const Weights& weights) { return weights.start >= tokens; });
}

// Empty if the weights of some tokens are not known.
std::string ToldTokens::weights_json() const {
  std::string json = "[";
  for (const Choice& choice : choices_) {
    json.append(json.size() > 1 ? ",[" : "[");
    const std::vector<Weights>& spans = choice.weights;
    const size_t tokens = choice.tokens.size();
    if (tokens > 0 && (spans.empty() || spans.front().start > 0)) {
      return {};
    }
    for (size_t i = 0; i < spans.size() && spans[i].start < tokens; ++i) {
      const size_t end = i + 1 < spans.size() ? std::min(spans[i + 1].start, tokens) : tokens;
      json.append(i > 0 ? "," : "").append(R"({"version":")").append(spans[i].version);
      json.append(R"(","start":)").append(std::to_string(spans[i].start));
      json.append(R"(,"end":)").append(std::to_string(end)).append("}");
    }
    json.push_back(']');
  }
  return json.size() > 1 ? json.append("]") : std::string();
}

std::string ToldTokens::tokens_json() const {
  std::string json = "[";
  for (const Choice& choice : choices_) {
    json.append(json.size() > 1 ? ",[" : "[");
    for (const Token token : choice.tokens) {
      json.append(json.back() == '[' ? "" : ",").append(std::to_string(token));
    }
    json.push_back(']');
  }
  return json.append("]");
}

}  // namespace pdjob::openai
