// RowSplitter: cuts a stream of bytes into rows, which are lines, or records of CSV that may have
// line breaks inside quotes. It skips empty lines, a byte order mark, and '\r' at the end of a
// line. It holds at most kRowBytesMax of a row. Value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "batch/input/row_format.h"
#include "common/result.h"

namespace pdjob::batch {

inline constexpr size_t kRowBytesMax = size_t{32} << 20;  // A longer row fails.

struct RawRow {
  uint64_t line = 0;    // Its first, from 1.
  uint64_t offset = 0;  // Of its first byte.
  uint64_t length = 0;  // Bytes, without the end of the line.
  // Empty if it is longer than kRowBytesMax. Has spare capacity, so it can be parsed in place.
  std::string* text = nullptr;
};

class RowSplitter {
 public:
  using Take = std::function<Status(const RawRow&)>;

  // `take` gets each row, and its text until it returns.
  RowSplitter(RowFormat format, Take take);

  // Fails when `take` fails.
  Status feed(std::string_view bytes);
  // After the last byte: the last line may lack its end.
  Status finish();

 private:
  void append(std::string_view bytes);
  Status end_row();

  const bool quotes_;
  const Take take_;
  std::string text_;
  uint64_t length_ = 0;  // Of the row so far.
  uint64_t offset_ = 0;  // Where it began.
  uint64_t line_ = 1;    // Where it began.
  uint64_t lines_inside_ = 0;
  bool in_quotes_ = false;
  char last_ = 0;  // The last byte of the row.
};

}  // namespace pdjob::batch
