#include "batch/input/row_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "batch/input/csv_cursor.h"
#include "batch/input/row_files.h"
#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::batch {
namespace {

using openai::JsonNames;
using openai::JsonObject;

constexpr size_t kCustomIdBytesMax = 1024;
constexpr std::string_view kEndpoints[] = {"/v1/chat/completions", "/v1/completions",
                                           kEmbeddingEndpoint};
// Without max_tokens, an answer is taken to be so long.
constexpr int64_t kUsualTokens = 256;
constexpr int64_t kTokensMax = 1 << 20;
// Computing a token of a prompt costs about this part of generating one.
constexpr size_t kPromptBytesPerToken = 64;

constexpr std::array<std::string_view, 4> kRowFields = {"custom_id", "method", "url", "body"};
constexpr JsonNames kRowNames{kRowFields};
constexpr std::array<std::string_view, 8> kBodyFields = {
    "max_tokens", "max_completion_tokens", "n_predict", "stream", "stream_options", "n", "messages",
    "prompt"};
constexpr JsonNames kBodyNames{kBodyFields};

std::optional<RowRequest> wrong(RowError& error, const char* code, std::string message) {
  error.code = code;
  error.message = std::move(message);
  return std::nullopt;
}

void give_slack(std::string& text) { text.reserve(text.size() + JsonObject::kSlack); }

uint32_t weight_of(const JsonObject& body, size_t bytes) {
  int64_t tokens = kUsualTokens;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    tokens = openai::json_integer(body.value(name)).value_or(tokens);
  }
  const int64_t choices = openai::json_integer(body.value("n")).value_or(1);
  return static_cast<uint32_t>(std::clamp<int64_t>(tokens, 0, kTokensMax) *
                                   std::clamp<int64_t>(choices, 1, 128) +
                               static_cast<int64_t>(bytes / kPromptBytesPerToken));
}

// Sixteen bits of a hash for each of these lengths that the prompt has.
uint64_t beginning_of(std::string_view prompt) {
  uint64_t beginning = 0;
  for (const size_t length : {256, 1024, 4096, 16384}) {
    const bool has = prompt.size() >= length;
    beginning = beginning << 16 | (has ? row_digest(prompt.substr(0, length)) & 0xffff : 0);
  }
  return beginning;
}

RowReader::Glance glance_at(std::string body, std::string_view endpoint) {
  if (endpoint == kEmbeddingEndpoint) {
    return {.weight = static_cast<uint32_t>(1 + body.size() / kPromptBytesPerToken)};
  }
  give_slack(body);
  const auto object = JsonObject::scan(body, kBodyNames, JsonObject::Check::kNamed);
  if (!object) {
    return {};
  }
  const std::string_view messages = object->value("messages");
  return {.weight = weight_of(*object, body.size()),
          .beginning = beginning_of(messages.empty() ? object->value("prompt") : messages)};
}

bool is_endpoint(std::string_view url) {
  return std::ranges::find(kEndpoints, url) != std::end(kEndpoints);
}

constexpr const char* kWrongUrl =
    "its url must be /v1/chat/completions, /v1/completions or /v1/embeddings";

}  // namespace

std::optional<RowRequest> checked_request(RowRequest request, RowError& error) {
  error.custom_id = request.custom_id;
  if (!is_endpoint(request.target)) {
    return wrong(error, "invalid_url", kWrongUrl);
  }
  give_slack(request.body);
  const auto body = JsonObject::scan(request.body, kBodyNames);
  if (!body || !openai::is_valid_json(request.body)) {
    return wrong(error, "invalid_body", "its body is not a JSON object");
  }
  if (!body->value("stream").empty() || !body->value("stream_options").empty()) {
    const openai::JsonEdit edits[] = {{"stream", ""}, {"stream_options", ""}};
    request.body = body->edited(edits);
  }
  return request;
}

RowReader::Glance RowReader::glance(std::string& text, const Position& place) const {
  RowError ignored;
  Glance glance;
  if (place.format != RowFormat::kOpenAi) {
    if (const auto filled = filled_request(text, place, ignored)) {
      glance = glance_at(filled->body, filled->target);
      glance.custom_id = filled->custom_id;
    }
    return glance;
  }
  give_slack(text);
  if (const auto row = JsonObject::scan(text, kRowNames, JsonObject::Check::kNamed)) {
    glance = glance_at(std::string(row->value("body")),
                       openai::json_string(row->value("url")).value_or(""));
    glance.custom_id = openai::json_string(row->value("custom_id"));
  }
  return glance;
}

std::optional<RowRequest> RowReader::request(std::string& text, const Position& place,
                                             RowError& error) const {
  if (!openai::is_valid_utf8(text)) {
    return wrong(error, "invalid_utf8", "it is not valid UTF-8");
  }
  auto request = place.format == RowFormat::kOpenAi ? openai_request(text, error)
                                                    : filled_request(text, place, error);
  return request ? checked_request(std::move(*request), error) : std::nullopt;
}

std::optional<RowRequest> RowReader::openai_request(std::string& text, RowError& error) const {
  give_slack(text);
  const auto row = JsonObject::scan(text, kRowNames);
  if (!row) {
    return wrong(error, "invalid_json_line", "it is not a JSON object");
  }
  auto id = openai::json_string(row->value("custom_id"));
  if (!id || id->empty() || id->size() > kCustomIdBytesMax) {
    return wrong(
        error, "invalid_custom_id",
        "its custom_id must be a text of 1 to " + std::to_string(kCustomIdBytesMax) + " bytes");
  }
  error.custom_id = *id;
  const auto method = openai::json_string(row->value("method"));
  if (method && *method != "POST") {
    return wrong(error, "invalid_method", "its method must be POST");
  }
  auto url = openai::json_string(row->value("url"));
  if (!url || !is_endpoint(*url)) {
    return wrong(error, "invalid_url", kWrongUrl);
  }
  return RowRequest{.custom_id = std::move(*id),
                    .target = std::move(*url),
                    .body = std::string(row->value("body"))};
}

namespace {

using Columns = std::vector<BodyTemplate::Column>;

// `names` and `members` keep what the columns refer to.
Result<Columns> csv_columns(std::string_view text, const RowReader::Position& place,
                            std::vector<std::string>& names) {
  PDJOB_TRY(names, split_csv(place.header, delimiter_of(place.format)));
  PDJOB_TRY(std::vector<std::string> values, split_csv(text, delimiter_of(place.format)));
  if (values.size() != names.size()) {
    return Error{ErrorCode::kInvalidArgument, "it has " + std::to_string(values.size()) +
                                                  " columns, but the header has " +
                                                  std::to_string(names.size())};
  }
  Columns columns;
  for (size_t i = 0; i < names.size(); ++i) {
    columns.push_back({.name = names[i], .value = std::move(values[i])});
  }
  return columns;
}

Result<Columns> json_columns(const std::string& text, std::vector<openai::JsonMember>& members) {
  PDJOB_TRY(members, openai::json_members(text));
  Columns columns;
  for (const openai::JsonMember& member : members) {
    columns.push_back({.name = member.name, .value = std::string(member.value), .json = true});
  }
  return columns;
}

}  // namespace

std::optional<RowRequest> RowReader::filled_request(std::string& text, const Position& place,
                                                    RowError& error) const {
  std::vector<std::string> names;
  std::vector<openai::JsonMember> members;
  give_slack(text);
  Result<Columns> columns = Columns{{.name = "text", .value = text}};
  if (delimiter_of(place.format) != 0) {
    columns = csv_columns(text, place, names);
  } else if (place.format == RowFormat::kJsonl) {
    columns = json_columns(text, members);
  }
  if (!columns) {
    return wrong(error, "invalid_row", columns.error().message);
  }
  RowRequest request{.custom_id = "row-" + std::to_string(place.number),
                     .target = rules_.endpoint.empty() ? rules_.body->endpoint() : rules_.endpoint};
  if (!rules_.id_column.empty()) {
    const auto found = std::ranges::find(*columns, rules_.id_column, &BodyTemplate::Column::name);
    if (found == columns->end() || found->value.empty()) {
      return wrong(error, "invalid_custom_id", "it has no column " + rules_.id_column);
    }
    request.custom_id =
        found->json ? openai::json_string(found->value).value_or(found->value) : found->value;
  }
  error.custom_id = request.custom_id;
  Result<std::string> body = rules_.body->fill(*columns);
  if (!body) {
    return wrong(error, "invalid_row", body.error().message);
  }
  request.body = std::move(*body);
  return request;
}

}  // namespace pdjob::batch
