// BodyTemplate: makes the body of a request from the columns of a row. It is JSON with {{column}}
// in it. Inside a JSON string, the column's text is put there, escaped. Elsewhere, its JSON value
// is; a text that is not JSON becomes a string. Value.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::batch {

inline constexpr std::string_view kEmbeddingEndpoint = "/v1/embeddings";

class BodyTemplate {
 public:
  // kInvalidArgument: it is not a JSON object once its columns are filled.
  static Result<BodyTemplate> parse(std::string_view text);

  // One column of a row. `json`: raw JSON; otherwise a plain text.
  struct Column {
    std::string_view name;
    std::string value;
    bool json = false;
  };
  // kInvalidArgument: the row has no such column.
  Result<std::string> fill(const std::vector<Column>& columns) const;

  // "/v1/chat/completions" if it has messages, "/v1/embeddings" if it has an input, or else
  // "/v1/completions".
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Piece {
    std::string text;    // Before the column.
    std::string column;  // Empty: the end.
    bool in_string = false;
  };
  BodyTemplate() = default;

  std::vector<Piece> pieces_;
  std::string endpoint_;
};

}  // namespace pdjob::batch
