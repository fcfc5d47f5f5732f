#include "batch/input/row_splitter.h"

#include <algorithm>
#include <utility>

#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kKeptCapacity = size_t{1} << 20;

}  // namespace

RowSplitter::RowSplitter(RowFormat format, Take take)
    : quotes_(format == RowFormat::kCsv), take_(std::move(take)) {}

void RowSplitter::append(std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  length_ += bytes.size();
  last_ = bytes.back();
  if (length_ <= kRowBytesMax) {
    text_.append(bytes);
  }
  if (quotes_ && std::ranges::count(bytes, '"') % 2 == 1) {
    in_quotes_ = !in_quotes_;
  }
}

Status RowSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    append(bytes.substr(0, end));
    if (end == std::string_view::npos) {
      return ok();
    }
    bytes.remove_prefix(end + 1);
    if (in_quotes_) {
      ++lines_inside_;
      append("\n");
    } else {
      PDJOB_TRY_STATUS(end_row());
    }
  }
  return ok();
}

Status RowSplitter::finish() { return length_ > 0 ? end_row() : ok(); }

Status RowSplitter::end_row() {
  RawRow row{.line = line_, .offset = offset_, .length = length_, .text = &text_};
  offset_ += length_ + 1;
  line_ += lines_inside_ + 1;
  if (length_ > kRowBytesMax) {
    text_.clear();
  } else if (row.offset == 0 && text_.starts_with(kByteOrderMark)) {
    text_.erase(0, kByteOrderMark.size());
    row.offset = kByteOrderMark.size();
    row.length -= kByteOrderMark.size();
  }
  if (row.length > 0 && last_ == '\r') {
    row.length -= 1;
    text_.resize(text_.empty() ? 0 : text_.size() - 1);
  }
  const bool blank =
      row.length <= kRowBytesMax && text_.find_first_not_of(" \t\r") == std::string::npos;
  text_.reserve(text_.size() + openai::JsonObject::kSlack);
  const Status taken = blank ? ok() : take_(row);
  if (text_.capacity() > kKeptCapacity) {
    text_ = {};
  }
  text_.clear();
  length_ = lines_inside_ = 0;
  in_quotes_ = false;
  last_ = 0;
  return taken;
}

}  // namespace pdjob::batch
