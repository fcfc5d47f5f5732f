#include "router/streams/pdjob_stream.h"

#include <charconv>

#include "common/limits.h"

namespace pdjob::router {
namespace {

// An event has a few hundred bytes, and a size line is as long as its tokens. Anything larger is
// not a stream of tokens.
constexpr size_t kChunkBytesMax = limits::kHttpSendQueueBytesMax / 4;
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

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
  told_ = tokens_.take(extension) != openai::ToldTokens::Taken::kBad;
  return told_;
}

}  // namespace pdjob::router
