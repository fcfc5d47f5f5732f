#include "batch/input/csv_cursor.h"

namespace pdjob::batch {

CsvCursor::Byte CsvCursor::take(char byte) {
  const bool quote = byte == '"';
  if (state_ == State::kInQuotes) {
    state_ = quote ? State::kQuoteInQuotes : State::kInQuotes;
    return quote ? Byte::kQuote : Byte::kText;
  }
  if (byte == delimiter_) {
    state_ = State::kFieldStart;
    return Byte::kDelimiter;
  }
  if (byte == '\n' || byte == '\r') {
    state_ = State::kFieldStart;
    return Byte::kLineBreak;
  }
  if (quote && state_ == State::kFieldStart) {
    state_ = State::kInQuotes;
    return Byte::kQuote;
  }
  state_ = quote && state_ == State::kQuoteInQuotes ? State::kInQuotes : State::kInField;
  return Byte::kText;
}

Result<std::vector<std::string>> split_csv(std::string_view record, char delimiter) {
  std::vector<std::string> fields(1);
  CsvCursor cursor(delimiter);
  for (const char byte : record) {
    switch (cursor.take(byte)) {
      case CsvCursor::Byte::kText:
        fields.back().push_back(byte);
        break;
      case CsvCursor::Byte::kQuote:
        break;
      case CsvCursor::Byte::kDelimiter:
        fields.emplace_back();
        break;
      case CsvCursor::Byte::kLineBreak:
        return Error{ErrorCode::kInvalidArgument, "it has a line break outside quotes"};
    }
  }
  if (cursor.in_quotes()) {
    return Error{ErrorCode::kInvalidArgument,
                 "a field that begins with a quote does not end with one: put the field in quotes, "
                 "and write each quote in it twice"};
  }
  return fields;
}

}  // namespace pdjob::batch
