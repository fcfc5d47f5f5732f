// RowReader: makes a request of a row. Value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "batch/input/body_template.h"
#include "batch/input/row_format.h"
#include "common/result.h"

namespace pdjob::batch {

struct RowRules {
  std::optional<BodyTemplate> body;  // For rows of another format than kOpenAi.
  std::string endpoint;              // Of those rows; empty: the template's.
  std::string id_column;  // Has their custom_id; empty: "row-" and the number of the row.
};

struct RowRequest {
  std::string custom_id;
  std::string target;  // "/v1/completions".
  std::string body;
};

// Why a row cannot be asked. `code` is one word: "invalid_json_line".
struct RowError {
  std::string code;
  std::string message;
  std::string custom_id;  // Empty: unknown.
};

// Checks a request: its target must be one that a batch may have, and its body a JSON object. The
// result asks for one whole reply. Pure.
std::optional<RowRequest> checked_request(RowRequest request, RowError& error);

class RowReader {
 public:
  explicit RowReader(RowRules rules) : rules_(std::move(rules)) {}

  struct Position {
    RowFormat format = RowFormat::kOpenAi;
    uint64_t number = 0;      // Of the row, from 1.
    std::string_view header;  // CSV, TSV: the first record.
  };
  // The scan keeps this of a row. `text` may get more capacity.
  struct Glance {
    std::optional<std::string> custom_id;  // Empty: the row has none, or is wrong.
    uint32_t weight = 0;                   // The predicted length of its answer, in tokens.
    // Prompts with a common beginning of some hundred bytes have near ones, the nearer the longer
    // it is.
    uint64_t beginning = 0;
  };
  Glance glance(std::string& text, const Position& place) const;
  // The request, or a RowError in `error`.
  std::optional<RowRequest> request(std::string& text, const Position& place,
                                    RowError& error) const;

 private:
  std::optional<RowRequest> openai_request(std::string& text, RowError& error) const;
  std::optional<RowRequest> filled_request(std::string& text, const Position& place,
                                           RowError& error) const;

  RowRules rules_;
};

}  // namespace pdjob::batch
