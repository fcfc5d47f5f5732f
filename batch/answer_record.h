// The lines of output.jsonl and errors.jsonl, in the form of OpenAI's Batch API, and the numbers
// that the ledger keeps of a row. Pure.
#pragma once

#include <string>
#include <string_view>

#include "batch/row_client.h"
#include "batch/store/ledger_file.h"

namespace pdjob::batch {

struct RowName {
  std::string record_id;  // "batch_req_1a2b3c4d_17".
  std::string custom_id;  // Empty: unknown.
  std::string place;      // "rows.jsonl:17".
};

// Requires: the body of an answered row is JSON.
std::string answer_line(const RowName& row, const RowResult& result);
// With the reply, if there was one.
std::string error_line(const RowName& row, const RowResult& result);

// Sets the numbers of tokens from the reply's `usage`, if it has one.
void read_usage(const std::string& body, RowStats& stats);

}  // namespace pdjob::batch
