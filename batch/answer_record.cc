#include "batch/answer_record.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::batch {
namespace {

using openai::JsonNames;
using openai::JsonObject;

constexpr std::array<std::string_view, 1> kUsageField = {"usage"};
constexpr JsonNames kUsageName{kUsageField};
constexpr std::array<std::string_view, 2> kTokenFields = {"prompt_tokens", "completion_tokens"};
constexpr JsonNames kTokenNames{kTokenFields};

void begin(JsonWriter& json, const RowName& row) {
  json.begin_object();
  json.key("id").string(row.record_id);
  json.key("custom_id");
  row.custom_id.empty() ? json.null() : json.string(row.custom_id);
}

void append_response(JsonWriter& json, const RowResult& result) {
  json.key("response").begin_object();
  json.key("status_code").integer(result.status);
  json.key("request_id").string(result.request_id);
  json.key("body");
  if (result.body.empty()) {
    json.null();
  } else {
    // One line of the file is one record.
    std::string compact;
    openai::append_compact(compact, result.body);
    json.raw(compact);
  }
  json.end_object();
}

void append_stages(JsonWriter& json, const RowResult& result) {
  if (!result.stages.empty()) {
    json.key("stages").raw(result.stages);
  }
}

uint32_t tokens_of(std::string_view value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(openai::json_integer(value).value_or(0), 0,
                                                   std::numeric_limits<uint32_t>::max()));
}

}  // namespace

std::string answer_line(const RowName& row, const RowResult& result) {
  std::string line;
  line.reserve(result.body.size() + 256);
  JsonWriter json(line);
  begin(json, row);
  append_response(json, result);
  json.key("error").null();
  append_stages(json, result);
  json.end_object();
  return line;
}

std::string error_line(const RowName& row, const RowResult& result) {
  std::string line;
  JsonWriter json(line);
  begin(json, row);
  if (result.status != 0) {
    append_response(json, result);
  } else {
    json.key("response").null();
  }
  json.key("error").begin_object();
  json.key("code").string(result.cause);
  json.key("message").string(row.place + ": " + result.message);
  json.end_object();
  append_stages(json, result);
  json.end_object();
  return line;
}

void read_usage(const std::string& body, RowStats& stats) {
  const auto reply = JsonObject::scan(body, kUsageName, JsonObject::Check::kNamed);
  if (!reply || reply->value("usage").empty()) {
    return;
  }
  const std::string usage(reply->value("usage"));
  if (const auto fields = JsonObject::scan(usage, kTokenNames)) {
    stats.prompt_tokens = tokens_of(fields->value("prompt_tokens"));
    stats.completion_tokens = tokens_of(fields->value("completion_tokens"));
  }
}

}  // namespace pdjob::batch
