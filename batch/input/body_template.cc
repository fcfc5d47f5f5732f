#include "batch/input/body_template.h"

#include <algorithm>
#include <array>

#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

void append_value(std::string& out, const BodyTemplate::Column& column, bool in_string) {
  if (in_string) {
    append_json_escaped(
        out, column.json ? openai::json_string(column.value).value_or(column.value) : column.value);
  } else if (column.json || openai::is_valid_json(column.value)) {
    out.append(column.value);
  } else {
    JsonWriter(out).string(column.value);
  }
}

}  // namespace

Result<BodyTemplate> BodyTemplate::parse(std::string_view text) {
  BodyTemplate made;
  std::vector<Column> samples;
  bool in_string = false;
  Piece piece;
  for (size_t at = 0; at < text.size();) {
    if (!text.substr(at).starts_with("{{")) {
      in_string = in_string != (text[at] == '"' && !openai::is_json_escaped(text, at));
      piece.text.push_back(text[at++]);
      continue;
    }
    const size_t end = text.find("}}", at);
    const std::string_view name =
        end == std::string_view::npos ? "" : trimmed(text.substr(at + 2, end - at - 2));
    if (name.empty() || name.find_first_of("{\"") != std::string_view::npos) {
      // A text that only looks like a column.
      piece.text.push_back(text[at++]);
      continue;
    }
    piece.column = name;
    piece.in_string = in_string;
    made.pieces_.push_back(std::move(piece));
    piece = {};
    at = end + 2;
  }
  made.pieces_.push_back(std::move(piece));
  for (const Piece& each : made.pieces_) {
    samples.push_back({.name = each.column, .value = "0"});
  }
  PDJOB_TRY(std::string sample, made.fill(samples));
  sample.reserve(sample.size() + openai::JsonObject::kSlack);
  constexpr std::array<std::string_view, 2> kPrompts = {"messages", "input"};
  const auto object = openai::JsonObject::scan(sample, kPrompts);
  if (!object || !openai::is_valid_json(sample)) {
    return Error{ErrorCode::kInvalidArgument,
                 "the template is not a JSON object with {{columns}} in it"};
  }
  made.endpoint_ = !object->value("messages").empty() ? "/v1/chat/completions"
                   : !object->value("input").empty()  ? kEmbeddingEndpoint
                                                      : "/v1/completions";
  return made;
}

Result<std::string> BodyTemplate::fill(const std::vector<Column>& columns) const {
  std::string body;
  for (const Piece& piece : pieces_) {
    body.append(piece.text);
    if (piece.column.empty()) {
      break;
    }
    const auto found = std::ranges::find(columns, piece.column, &Column::name);
    if (found == columns.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   "it has no column " + piece.column + ", which the template names"};
    }
    append_value(body, *found, piece.in_string);
  }
  return body;
}

}  // namespace pdjob::batch
