// RowSplitter: cuts a stream of bytes into rows, which are lines, or records of CSV that may have
// line breaks inside quotes. A line ends with "\n", "\r\n" or "\r". Empty lines and a byte order
// mark are skipped. It holds at most `row_bytes_max` of a row. Value.
//
// A quoted field of CSV that does not end within `row_bytes_max` ends with its first line. So that
// record fails alone, and the lines after it are rows of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "batch/input/csv_cursor.h"
#include "batch/input/row_format.h"
#include "common/result.h"

namespace pdjob::batch {

inline constexpr size_t kRowBytesMax = size_t{32} << 20;  // A longer row fails.

struct RawRow {
  uint64_t line = 0;    // Its first, from 1.
  uint64_t offset = 0;  // Of its first byte.
  uint64_t length = 0;  // Bytes, without the end of the line.
  // Empty if it is longer than `row_bytes_max`. Has spare capacity, so it can be parsed in place.
  std::string* text = nullptr;
};

class RowSplitter {
 public:
  using Take = std::function<Status(const RawRow&)>;

  // `take` gets each row, and its text until it returns. A test may allow less.
  RowSplitter(RowFormat format, Take take, size_t row_bytes_max = kRowBytesMax);

  // Fails when `take` fails.
  Status feed(std::string_view bytes);
  // After the last byte: the last line may lack its end.
  Status finish();

 private:
  // The first line break inside the quoted field that is open.
  struct Break {
    uint64_t at = 0;     // In the row.
    uint64_t lines = 0;  // Of the row before it.
  };

  bool in_csv() const { return delimiter_ != 0 && length_ <= row_bytes_max_; }
  size_t record_end(std::string_view bytes);
  void note_byte(char byte, uint64_t at);
  bool in_byte_order_mark(char byte, uint64_t at) const;
  void append(std::string_view bytes);
  Status end_row();
  Status end_at_break(std::string_view more);

  const char delimiter_;  // 0: rows are lines.
  const Take take_;
  const size_t row_bytes_max_;
  std::string text_;
  uint64_t length_ = 0;  // Of the row so far.
  uint64_t offset_ = 0;  // Where it began.
  uint64_t line_ = 1;    // Where it began.
  uint64_t lines_inside_ = 0;
  CsvCursor cursor_;
  std::optional<Break> break_;
  char last_ = 0;  // The last byte of the row.
  bool after_carriage_return_ = false;
};

}  // namespace pdjob::batch
