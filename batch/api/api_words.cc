#include "batch/api/api_words.h"

#include <algorithm>

#include "common/json/json_writer.h"
#include "common/parse_number.h"

namespace pdjob::batch {
namespace {

constexpr size_t kIdShownMax = 64;

std::string shown(const std::string& id) { return id.substr(0, kIdShownMax); }

}  // namespace

Result<ListQuery, openai::ApiError> parse_list_query(std::string_view query,
                                                     const ListLimits& limits) {
  ListQuery parsed{.limit = limits.usual};
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
    if (name == "after") {
      parsed.after = value;
    } else if (name == "purpose") {
      parsed.purpose = value;
    } else if (name == "limit") {
      const auto limit = parse_number<size_t>(value);
      if (!limit || *limit < 1 || *limit > limits.max) {
        return openai::invalid_request("It must be 1 to " + std::to_string(limits.max), "limit",
                                       "invalid_value");
      }
      parsed.limit = *limit;
    } else if (name == "order") {
      if (value != "asc" && value != "desc") {
        return openai::invalid_request("It must be 'asc' or 'desc'", "order", "invalid_value");
      }
      parsed.order = value == "asc" ? ListOrder::kOldestFirst : ListOrder::kNewestFirst;
    }
  }
  return parsed;
}

std::string list_object(const std::vector<ListItem>& items, bool has_more) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("object").string("list");
  json.key("data").begin_array();
  for (const ListItem& item : items) {
    json.raw(item.object);
  }
  json.end_array();
  json.key("first_id");
  items.empty() ? json.null() : json.string(items.front().id);
  json.key("last_id");
  items.empty() ? json.null() : json.string(items.back().id);
  json.key("has_more").boolean(has_more);
  json.end_object();
  return text;
}

std::string deleted_object(const std::string& id) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("id").string(id);
  json.key("object").string("file");
  json.key("deleted").boolean(true);
  json.end_object();
  return text;
}

openai::ApiError no_such_file(const std::string& id) {
  return openai::invalid_request("No such File object: " + shown(id), "id", "", 404);
}

openai::ApiError no_such_batch(const std::string& id) {
  return openai::invalid_request("No batch found with id '" + shown(id) + "'.", "", "", 404);
}

openai::ApiError overloaded(std::string message) {
  return {.status = 503, .type = "overloaded_error", .message = std::move(message)};
}

}  // namespace pdjob::batch
