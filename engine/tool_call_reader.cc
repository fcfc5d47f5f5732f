#include "engine/tool_call_reader.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "engine/grammar/tool_calls.h"

namespace pdjob::engine {
namespace {

// More is content, so that a model that only writes line breaks is not held back for ever.
constexpr size_t kSpacesHeldMax = 64;

bool is_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

// True if each of the two is a beginning of the other.
bool agree(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return a.substr(0, size) == b.substr(0, size);
}

}  // namespace

void ToolCallReader::read(std::string_view text, std::string& content,
                          std::vector<ToolCallPiece>& pieces) {
  for (const char byte : text) {
    switch (place_) {
      case Place::kContent:
        read_content(byte, content);
        break;
      case Place::kHead:
        read_head(byte, content, pieces);
        break;
      case Place::kArguments:
        read_argument(byte, pieces);
        break;
      case Place::kClose:
        read_close(byte, content);
        break;
    }
  }
}

bool ToolCallReader::may_open() const {
  const size_t spaces =
      static_cast<size_t>(std::find_if_not(held_.begin(), held_.end(), is_space) - held_.begin());
  return spaces <= kSpacesHeldMax && kCallOpen.starts_with(std::string_view(held_).substr(spaces));
}

void ToolCallReader::read_content(char byte, std::string& content) {
  held_ += byte;
  if (held_.ends_with(kCallOpen)) {
    held_.clear();
    place_ = Place::kHead;
    return;
  }
  while (!may_open()) {
    content += held_.front();
    held_.erase(0, 1);
  }
}

void ToolCallReader::read_head(char byte, std::string& content,
                               std::vector<ToolCallPiece>& pieces) {
  held_ += byte;
  const std::string_view head(held_);
  const size_t name_end = head.find('"', kCallName.size());
  const std::string_view rest =
      name_end == std::string_view::npos ? std::string_view() : head.substr(name_end);
  if (!agree(head, kCallName) || !agree(rest, kCallArguments) ||
      head.size() > kCallName.size() + limits::kToolNameBytesMax + kCallArguments.size()) {
    return give_back(content.append(kCallOpen));
  }
  if (rest == kCallArguments) {
    pieces.push_back(
        {.call = calls_++,
         .name = std::string(head.substr(kCallName.size(), name_end - kCallName.size()))});
    held_.clear();
    depth_ = 0;
    place_ = Place::kArguments;
  }
}

void ToolCallReader::read_argument(char byte, std::vector<ToolCallPiece>& pieces) {
  const uint32_t call = calls_ - 1;
  if (pieces.empty() || pieces.back().call != call) {
    pieces.push_back({.call = call});
  }
  pieces.back().arguments += byte;
  if (quoted_) {
    quoted_ = escaped_ || byte != '"';
    escaped_ = !escaped_ && byte == '\\';
  } else if (byte == '"') {
    quoted_ = true;
  } else if (byte == '{' || byte == '[') {
    ++depth_;
  } else if (byte == '}' || byte == ']') {
    depth_ -= depth_ > 0 ? 1 : 0;
    place_ = depth_ == 0 ? Place::kClose : place_;
  }
}

void ToolCallReader::read_close(char byte, std::string& content) {
  held_ += byte;
  if (held_ == kCallClose) {
    held_.clear();
    place_ = Place::kContent;
  } else if (!kCallClose.starts_with(held_)) {
    give_back(content);
  }
}

void ToolCallReader::give_back(std::string& content) {
  place_ = Place::kContent;
  const std::string text = std::exchange(held_, {});
  for (const char byte : text) {
    read_content(byte, content);
  }
}

void ToolCallReader::finish(std::string& content) {
  if (place_ == Place::kHead) {
    content.append(kCallOpen).append(held_);
  } else if (place_ == Place::kContent &&
             (calls_ == 0 || !std::all_of(held_.begin(), held_.end(), is_space))) {
    content.append(held_);
  }
  held_.clear();
}

}  // namespace pdjob::engine
