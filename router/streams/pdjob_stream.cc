#include "router/streams/pdjob_stream.h"

#include <algorithm>
#include <charconv>

#include "common/limits.h"

namespace pdjob::router {
namespace {

// An event has a few hundred bytes, and a size line is as long as its tokens. Anything larger is
// not a stream of tokens.
constexpr size_t kChunkBytesMax = limits::kHttpSendQueueBytesMax / 4;
constexpr size_t kTokensMax = 1 << 20;
constexpr size_t kChoicesMax = limits::kRequestChoicesMax;
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kWeights = ";w=";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Takes a number and one '.' after it, if there is one, off the front.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with('.')) {
    text.remove_prefix(1);
  }
  return error == std::errc();
}

}  // namespace

void PdjobStream::take(std::string_view raw, std::string& out) {
  if (state_ == State::kPassing) {
    out.append(raw);
  }
  if (state_ != State::kRecording) {
    return;
  }
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    held_.clear();
    joined.append(raw);
    raw = joined;
  }
  while (take_chunk(raw, out)) {
  }
  if (state_ == State::kRecording) {
    held_.assign(raw);
  } else {
    out.append(state_ == State::kPassing ? raw : kLastChunk);
  }
}

bool PdjobStream::take_chunk(std::string_view& bytes, std::string& out) {
  const size_t line = bytes.find(kLineEnd);
  if (state_ != State::kRecording || line == std::string_view::npos) {
    state_ = bytes.size() > kChunkBytesMax ? State::kPassing : state_;
    return false;
  }
  const std::string_view head = bytes.substr(0, line);
  size_t size = 0;
  const auto [digits_end, error] =
      std::from_chars(head.data(), head.data() + head.size(), size, 16);
  const std::string_view extension = head.substr(static_cast<size_t>(digits_end - head.data()));
  const size_t whole = line + kLineEnd.size() + size + kLineEnd.size();
  if (error != std::errc() || size == 0 || size > kChunkBytesMax) {
    state_ = State::kPassing;
    return false;
  }
  if (bytes.size() < whole) {
    return false;
  }
  if (!note(extension)) {
    state_ = State::kPassing;
    return false;
  }
  out.append(head.substr(0, head.size() - extension.size()));
  out.append(bytes.substr(line, whole - line));
  bytes.remove_prefix(whole);
  return true;
}

bool PdjobStream::note(std::string_view extension) {
  constexpr std::string_view kName = ";t=";
  if (!extension.starts_with(kName)) {
    return false;
  }
  extension.remove_prefix(kName.size());
  if (extension == "end") {
    state_ = State::kComplete;
    return true;
  }
  size_t choice = 0;
  if (!take_number(extension, choice) || choice >= kChoicesMax) {
    return false;
  }
  if (choice >= choices_.size()) {
    choices_.resize(choice + 1);
  }
  std::string_view weights;
  if (const size_t mark = extension.find(kWeights); mark != std::string_view::npos) {
    weights = extension.substr(mark + kWeights.size());
    extension = extension.substr(0, mark);
  }
  const size_t before = choices_[choice].size();
  while (!extension.empty()) {
    Token token = 0;
    if (!take_number(extension, token) || token < 0 || ++tokens_ > kTokensMax) {
      return false;
    }
    choices_[choice].push_back(token);
  }
  note_weights(choice, before, weights);
  told_ = true;
  return true;
}

void PdjobStream::note_weights(size_t choice, size_t start, std::string_view version) {
  const bool is_hex = std::ranges::all_of(
      version, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (version.empty() || version.size() > 2 * limits::kWeightVersionBytesMax || !is_hex) {
    return;
  }
  weights_.resize(choices_.size());
  std::vector<Weights>& spans = weights_[choice];
  if (spans.empty() || spans.back().version != version) {
    spans.push_back({.version = std::string(version), .start = start});
  }
}

// Empty if the weights of some tokens are not known.
std::string PdjobStream::weights_json() const {
  std::string json = "[";
  for (size_t choice = 0; choice < weights_.size(); ++choice) {
    json.append(choice > 0 ? ",[" : "[");
    const std::vector<Weights>& spans = weights_[choice];
    const size_t tokens = choices_[choice].size();
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

std::string PdjobStream::tokens_json() const {
  std::string json = "[";
  for (const std::vector<Token>& tokens : choices_) {
    json.append(json.size() > 1 ? ",[" : "[");
    for (const Token token : tokens) {
      json.append(json.back() == '[' ? "" : ",").append(std::to_string(token));
    }
    json.push_back(']');
  }
  return json.append("]");
}

}  // namespace pdjob::router
