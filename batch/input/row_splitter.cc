#include "batch/input/row_splitter.h"

#include <algorithm>
#include <utility>

#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kKeptCapacity = size_t{1} << 20;

size_t line_end(std::string_view bytes) {
  const auto found =
      std::ranges::find_if(bytes, [](char byte) { return byte == '\n' || byte == '\r'; });
  return static_cast<size_t>(found - bytes.begin());
}

}  // namespace

RowSplitter::RowSplitter(RowFormat format, Take take, size_t row_bytes_max)
    : delimiter_(delimiter_of(format)),
      take_(std::move(take)),
      row_bytes_max_(row_bytes_max),
      cursor_(delimiter_) {}

Status RowSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_carriage_return_, false) && bytes.front() == '\n') {
      ++offset_;
      bytes.remove_prefix(1);
      continue;
    }
    // Nothing can be said of the quotes of a record that is too long to be held: it ends with its
    // line.
    const std::string_view piece = in_csv() ? bytes.substr(0, row_bytes_max_ + 1 - length_) : bytes;
    const size_t end = in_csv() ? record_end(piece) : line_end(piece);
    const bool ends = end < piece.size();
    if (break_ && length_ + end > row_bytes_max_) {
      PDJOB_TRY_STATUS(end_at_break(piece));
    } else {
      append(piece.substr(0, end));
    }
    bytes.remove_prefix(ends ? end + 1 : end);
    if (ends) {
      after_carriage_return_ = piece[end] == '\r';
      PDJOB_TRY_STATUS(end_row());
    }
  }
  return ok();
}

Status RowSplitter::finish() {
  if (break_ && cursor_.in_quotes()) {
    PDJOB_TRY_STATUS(end_at_break(""));
  }
  return length_ > 0 ? end_row() : ok();
}

// The size of `bytes`: the record does not end in them.
size_t RowSplitter::record_end(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t at = length_ + i;
    if (in_byte_order_mark(bytes[i], at)) {
      continue;
    }
    if (cursor_.take(bytes[i]) == CsvCursor::Byte::kLineBreak) {
      return i;
    }
    note_byte(bytes[i], at);
  }
  return bytes.size();
}

void RowSplitter::note_byte(char byte, uint64_t at) {
  if (!cursor_.in_quoted_field()) {
    break_.reset();
  } else if (byte == '\r' || (byte == '\n' && last_ != '\r')) {
    break_ = break_.value_or(Break{.at = at, .lines = lines_inside_});
    ++lines_inside_;
  }
  last_ = byte;
}

bool RowSplitter::in_byte_order_mark(char byte, uint64_t at) const {
  return offset_ == 0 && at < kByteOrderMark.size() && byte == kByteOrderMark[at];
}

void RowSplitter::append(std::string_view bytes) {
  length_ += bytes.size();
  if (length_ <= row_bytes_max_) {
    text_.append(bytes);
  }
}

// The runs of quotes after the break are even, because none of them closed the field. So no quoted
// field of those lines has a line break, and the same bytes come here only once.
Status RowSplitter::end_at_break(std::string_view more) {
  const Break open = *std::exchange(break_, std::nullopt);
  text_.append(more);
  const std::string rest = text_.substr(open.at);
  text_.resize(open.at);
  length_ = open.at;
  lines_inside_ = open.lines;
  cursor_ = CsvCursor(delimiter_);
  return feed(rest);
}

Status RowSplitter::end_row() {
  RawRow row{.line = line_, .offset = offset_, .length = length_, .text = &text_};
  offset_ += length_ + 1;
  line_ += lines_inside_ + 1;
  if (length_ > row_bytes_max_) {
    text_.clear();
  } else if (row.offset == 0 && text_.starts_with(kByteOrderMark)) {
    text_.erase(0, kByteOrderMark.size());
    row.offset = kByteOrderMark.size();
    row.length -= kByteOrderMark.size();
  }
  // A record of blanks has fields; a line of blanks has nothing.
  const bool blank = row.length == 0 || (delimiter_ == 0 && row.length <= row_bytes_max_ &&
                                         text_.find_first_not_of(" \t") == std::string::npos);
  text_.reserve(text_.size() + openai::JsonObject::kSlack);
  const Status taken = blank ? ok() : take_(row);
  if (text_.capacity() > kKeptCapacity) {
    text_ = {};
  }
  text_.clear();
  length_ = lines_inside_ = 0;
  cursor_ = CsvCursor(delimiter_);
  break_.reset();
  last_ = 0;
  return taken;
}

}  // namespace pdjob::batch
