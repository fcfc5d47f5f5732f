// CsvCursor: where a reader of CSV stands, byte by byte. It reads as Python's `csv` does: a quote
// opens a field only at its beginning, and is text anywhere else. Value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::batch {

class CsvCursor {
 public:
  explicit CsvCursor(char delimiter) : delimiter_(delimiter) {}

  enum class Byte {
    kText,       // Of the field.
    kQuote,      // Opens or closes the field, or is the first one of two that mean one.
    kDelimiter,  // Ends the field.
    kLineBreak,  // Ends the record.
  };
  // What the next byte is. A new record begins after kLineBreak.
  Byte take(char byte);

  bool in_quotes() const { return state_ == State::kInQuotes; }
  // Also after a quote that closes the field unless another one follows.
  bool in_quoted_field() const { return in_quotes() || state_ == State::kQuoteInQuotes; }

 private:
  enum class State { kFieldStart, kInField, kInQuotes, kQuoteInQuotes };

  char delimiter_;
  State state_ = State::kFieldStart;
};

// The fields of one record. kInvalidArgument: a quoted field does not end. Pure.
Result<std::vector<std::string>> split_csv(std::string_view record, char delimiter);

}  // namespace pdjob::batch
