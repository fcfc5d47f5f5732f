#include "router/streams/engine_stream.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "common/limits.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

// Larger than any event.
constexpr size_t kEventBytesMax = limits::kHttpSendQueueBytesMax / 4;
constexpr size_t kTokenBytesMax = 8 * limits::kMiB;
// No character has so many tokens: these tokens make no text at all.
constexpr uint32_t kHeldEventsMax = 32;
constexpr std::string_view kData = "data:";
constexpr std::string_view kEventEnd = "\n\n";
constexpr std::string_view kBodyEnd = "0\r\n\r\n";

// The engine has failed, or cannot serve the request any more.
bool tells_failure(std::string_view data) {
  return data.starts_with("{\"error\"") || data.starts_with("{\"object\":\"error\"");
}

bool blames_request(std::string_view data) {
  const std::string_view code = value_in(data, "\"code\":");
  return code.size() == 3 && code.front() == '4';
}

std::string raw_or(std::string_view value, std::string_view otherwise) {
  return std::string(value.empty() ? otherwise : value);
}

}  // namespace

void EngineStream::take(std::string_view raw, std::string& out) {
  if (state_ == State::kEnded || state_ == State::kBroken) {
    return;
  }
  decoder_.decode(raw, text_);
  if (state_ == State::kComplete) {
    text_.clear();
  }
  size_t at = 0;
  while (state_ == State::kRecording) {
    const size_t end = text_.find(kEventEnd, at);
    if (end == std::string::npos) {
      break;
    }
    take_event(std::string_view(text_).substr(at, end - at));
    at = end + kEventEnd.size();
  }
  text_.erase(0, at);
  if (state_ == State::kRecording && text_.size() > kEventBytesMax) {
    passes_text_ = true;
    state_ = State::kPassing;
    release();
  }
  if (state_ == State::kPassing) {
    payload_.append(text_);
    text_.clear();
  }
  if (decoder_.done() || decoder_.failed()) {
    end_of_events();
  }
  frame(out);
}

// The body has ended, in whichever way.
void EngineStream::end_of_events() {
  if (state_ == State::kRecording) {
    state_ = finished_ && decoder_.done() ? State::kComplete : State::kBroken;
  } else if (state_ == State::kPassing) {
    state_ = decoder_.done() ? State::kComplete : State::kBroken;
  }
}

void EngineStream::frame(std::string& out) {
  if (!payload_.empty()) {
    std::array<char, 16> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), payload_.size(), 16).ptr;
    out.append(digits.data(), end).append("\r\n").append(payload_).append("\r\n");
    payload_.clear();
  }
  if (state_ == State::kComplete && (decoder_.done() || decoder_.failed())) {
    out.append(kBodyEnd);
    state_ = State::kEnded;
  }
}

void EngineStream::take_event(std::string_view event) {
  if (!event.starts_with(kData)) {
    payload_.append(event).append(kEventEnd);  // A comment, which keeps the connection alive.
    return;
  }
  event.remove_prefix(kData.size());
  event.remove_prefix(event.starts_with(' ') ? 1 : 0);
  if (event == "[DONE]" && mode_ == Mode::kReplay) {
    differs_ = true;  // The client has more.
    state_ = State::kBroken;
    return;
  }
  if (event == "[DONE]") {
    release();
    payload_.append("data: [DONE]\n\n");
    state_ = State::kComplete;
    return;
  }
  if (tells_failure(event)) {
    if (blames_request(event) || !resumable()) {
      release();
      payload_.append("data: ").append(event).append(kEventEnd);
      state_ = State::kPassing;
    } else {
      state_ = State::kBroken;
    }
    return;
  }
  take_data(event);
}

// All events of a stream begin alike.
EngineEvent EngineStream::read(std::string_view data) {
  constexpr std::string_view kChoices = "\"choices\":[";
  if (!head_.empty() && data.starts_with(head_)) {
    EngineEvent event = read_event(data, head_.size());
    event.of_answer = !data.substr(head_.size()).starts_with(']');
    return event;
  }
  const size_t choices = data.find(kChoices);
  head_ = choices == std::string_view::npos ? std::string_view()
                                            : data.substr(0, choices + kChoices.size());
  return read_event(data);
}

void EngineStream::take_data(std::string_view data) {
  EngineEvent event = read(data);
  auto numbers = numbers_in(event.tokens);
  const bool has_tokens = numbers && !numbers->empty();
  if (mode_ == Mode::kFirst && first_.empty()) {
    first_.assign(data);
  }
  if (prompt_.empty()) {
    prompt_ = numbers_in(event.prompt_tokens).value_or("");
  }
  if (mode_ != Mode::kFirst && event.of_answer && !has_tokens && !event.ends && !event.content) {
    return;  // The client has had the one that begins a stream.
  }
  // Only the event that begins a chat tells nothing of the answer.
  const bool begins = event.begins && !event.content;
  passes_text_ = passes_text_ || (event.of_answer && !has_tokens && !event.ends && !begins);
  if (passes_text_ && mode_ == Mode::kFirst) {
    state_ = State::kPassing;
    release();
    payload_.append("data: ").append(data).append(kEventEnd);
    return;
  }
  std::string edited;
  if (mode_ == Mode::kReplay) {
    auto rest = has_tokens ? repeat(data, event, *numbers) : std::nullopt;
    differs_ = differs_ || (event.ends && !rest);
    state_ = differs_ ? State::kBroken : state_;
    if (!rest) {
      return;
    }
    edited = std::move(*rest);
  }
  if (mode_ != Mode::kFirst) {
    auto of_stream = continued_event(edited.empty() ? data : edited, continued());
    if (!of_stream) {
      state_ = State::kBroken;
      return;
    }
    edited = std::move(*of_stream);
    data = edited;
    event = read_event(data);
    numbers = numbers_in(event.tokens);
  }
  keep(data, event, numbers.value_or(std::string_view()));
}

// The client gets the event, now or with a later one.
void EngineStream::keep(std::string_view data, const EngineEvent& event, std::string_view numbers) {
  reasons_ = event.reasoning || (reasons_ && !event.content);
  calls_ = calls_ || event.calls;
  if (event.text_offsets) {
    logprobs_.assign(data);
  }
  text_bytes_ += event.added.size();
  const bool holds = !numbers.empty() && event.additions == 0 && !event.ends && !reasons_ &&
                     !calls_ && request_.obstacle() == Obstacle::kNone &&
                     held_events_ + 1 < kHeldEventsMax;
  // What is not held goes straight to the client.
  if (!holds && !held_.empty()) {
    payload_.append(held_);
    held_.clear();
  }
  std::string& out = holds ? held_ : payload_;
  out.append("data: ");
  if (request_.wants_tokens()) {
    out.append(data);
  } else {
    append_nulled(out, data, event.prompt_tokens, event.tokens);
  }
  out.append(kEventEnd);
  if (!numbers.empty()) {
    append_numbers(held_tokens_, numbers);
    held_events_ += 1;
  }
  has_usage_ = has_usage_ || !event.of_answer;
  finished_ = finished_ || event.ends;
  if (!holds) {
    release();
  }
}

// Compares what the worker repeats with what the client has. Returns what the client lacks of it.
std::optional<std::string> EngineStream::repeat(std::string_view data, const EngineEvent& event,
                                                std::string_view numbers) {
  append_numbers(repeated_, numbers);
  repeated_text_ += event.added.size();
  const size_t common = std::min(repeated_.size(), tokens_.size());
  const bool is_equal = repeated_.compare(0, common, tokens_, 0, common) == 0;
  if (is_equal && repeated_.size() == common) {
    // All tokens, or those up to a comma.
    mode_ = tokens_.size() == common ? Mode::kRepeated : mode_;
    differs_ = tokens_.size() > common && tokens_[common] != ',';
  } else if (is_equal && repeated_[common] == ',' && repeated_text_ >= text_bytes_) {
    mode_ = Mode::kRepeated;
    auto rest =
        rest_of(data, repeated_text_ - text_bytes_, std::string_view(repeated_).substr(common + 1));
    differs_ = !rest;
    return rest;
  } else {
    differs_ = true;
  }
  return std::nullopt;
}

void EngineStream::release() {
  payload_.append(held_);
  if (!held_tokens_.empty()) {
    count_ += count_numbers(held_tokens_);
    append_numbers(tokens_, held_tokens_);
  }
  held_.clear();
  held_tokens_.clear();
  held_events_ = 0;
  if (tokens_.size() > kTokenBytesMax) {
    state_ = State::kPassing;
  }
}

Obstacle EngineStream::tokens_obstacle() const {
  if (calls_) {
    return Obstacle::kTools;
  }
  if (reasons_) {
    return Obstacle::kReasoning;
  }
  if (prompt_.empty()) {
    return Obstacle::kNoTokens;
  }
  return request_.obstacle();
}

Obstacle EngineStream::obstacle() const {
  if (differs_) {
    return Obstacle::kDiffers;
  }
  if (passes_text_ || state_ == State::kPassing || state_ == State::kComplete ||
      state_ == State::kEnded) {
    return Obstacle::kNoTokens;
  }
  if (anew() || by_tokens() || request_.may_replay()) {
    return Obstacle::kNone;
  }
  const Obstacle obstacle = tokens_obstacle();
  return obstacle == Obstacle::kNone ? Obstacle::kNoTokens : obstacle;  // No token may follow.
}

EngineRequest::Tokens EngineStream::tokens() const {
  return {.prompt = prompt_,
          .prompt_count = count_numbers(prompt_),
          .output = tokens_,
          .output_count = count_};
}

bool EngineStream::by_tokens() const {
  return !anew() && tokens_obstacle() == Obstacle::kNone && request_.may_follow(tokens());
}

Resumption EngineStream::resumption() const {
  return by_tokens() ? request_.by_tokens(tokens()) : request_.by_replay();
}

void EngineStream::change_worker() {
  held_.clear();
  held_tokens_.clear();
  held_events_ = 0;
  text_.clear();
  repeated_.clear();
  repeated_text_ = 0;
  decoder_ = {};
  state_ = State::kRecording;
  if (anew()) {
    mode_ = first_.empty() ? Mode::kFirst : Mode::kRepeated;
    tokens_before_ = 0;
  } else if (by_tokens()) {
    mode_ = Mode::kByTokens;
    tokens_before_ = count_;
  } else {
    mode_ = Mode::kReplay;
    tokens_before_ = 0;
  }
  text_before_ = mode_ == Mode::kByTokens ? text_offset_behind(logprobs_).value_or(0) : 0;
}

StreamFacts EngineStream::continued() const {
  return {.id = raw_or(value_in(first_, "\"id\":"), "\"\""),
          .created = raw_or(value_in(first_, "\"created\":"), "0"),
          .model = raw_or(value_in(first_, "\"model\":"), "\"\""),
          .as_chat = mode_ == Mode::kByTokens && request_.is_converted(),
          .tokens_before = tokens_before_,
          .text_before = text_before_};
}

void EngineStream::finish(std::string& out) {
  if (state_ == State::kComplete) {
    out.append(kBodyEnd);
    state_ = State::kEnded;
  }
  if (!finished_ || state_ == State::kEnded) {
    return;
  }
  if (request_.wants_usage() && !has_usage_ && !prompt_.empty()) {
    payload_.append("data: ")
        .append(usage_event(continued(), request_.is_chat(), count_numbers(prompt_), count_))
        .append(kEventEnd);
  }
  payload_.append("data: [DONE]\n\n");
  frame(out);
  out.append(kBodyEnd);
  state_ = State::kEnded;
}

}  // namespace pdjob::router
