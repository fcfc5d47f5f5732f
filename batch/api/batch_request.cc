#include "batch/api/batch_request.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "batch/api/upload_form.h"
#include "common/parse_number.h"
#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::batch {
namespace {

using openai::ApiError;
using openai::invalid_request;

constexpr std::string_view kEndpoints[] = {"/v1/chat/completions", "/v1/completions",
                                           "/v1/embeddings"};
constexpr size_t kMetadataPairsMax = 16;
constexpr size_t kMetadataNameMax = 64;  // As OpenAI: characters; here bytes of UTF-8 / 4.
constexpr size_t kMetadataValueMax = 512;
constexpr size_t kBytesPerCharacter = 4;

constexpr std::array<std::string_view, 5> kFields = {
    "input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"};
constexpr std::array<std::string_view, 2> kExpiryFields = {"anchor", "seconds"};

bool given(std::string_view value) { return !value.empty() && value != "null"; }

ApiError missing(const std::string& name) {
  return invalid_request("Missing required parameter: '" + name + "'.", name,
                         "missing_required_parameter");
}

// "90s", "10m", "24h", "7d".
std::optional<int64_t> seconds_of(std::string_view window) {
  constexpr std::pair<char, int64_t> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}};
  for (const auto& [unit, seconds] : kUnits) {
    if (window.ends_with(unit)) {
      const auto count = parse_number<uint32_t>(window.substr(0, window.size() - 1));
      return count && *count > 0 ? std::optional(*count * seconds) : std::nullopt;
    }
  }
  return std::nullopt;
}

Result<Done, ApiError> take_metadata(std::string_view value, std::string& metadata) {
  std::string text(value);
  const auto wrong = [] {
    return invalid_request(
        "It must be an object of at most 16 texts: names of up to 64 characters, "
        "values of up to 512",
        "metadata", "invalid_value");
  };
  const auto members = openai::json_members(text);
  if (!members || members->size() > kMetadataPairsMax || !openai::is_valid_json(text) ||
      !openai::is_valid_utf8(text)) {
    return wrong();
  }
  for (const openai::JsonMember& member : *members) {
    const auto content = openai::json_string(member.value);
    if (!content || member.name.empty() ||
        member.name.size() > kMetadataNameMax * kBytesPerCharacter ||
        content->size() > kMetadataValueMax * kBytesPerCharacter) {
      return wrong();
    }
  }
  openai::append_compact(metadata, text);
  return ok();
}

Result<Done, ApiError> take_expiry(std::string_view value, std::optional<int64_t>& lifetime) {
  const std::string text(value);
  const auto fields = openai::JsonObject::scan(text, kExpiryFields);
  const auto wrong = [](const char* name, std::string message) {
    return invalid_request(std::move(message), std::string("output_expires_after.") + name,
                           "invalid_value");
  };
  if (!fields || openai::json_string(fields->value("anchor")) != "created_at") {
    return wrong("anchor", "The only anchor is 'created_at'");
  }
  lifetime = openai::json_integer(fields->value("seconds"));
  if (!lifetime || *lifetime < kLifetimeMin || *lifetime > kLifetimeMax) {
    return wrong("seconds", "It must be " + std::to_string(kLifetimeMin) + " to " +
                                std::to_string(kLifetimeMax) + " seconds");
  }
  return ok();
}

}  // namespace

Result<BatchRequest, ApiError> parse_batch_request(std::string body, Duration window_max) {
  body.reserve(body.size() + openai::JsonObject::kSlack);
  const auto fields = openai::JsonObject::scan(body, kFields);
  if (!fields || !openai::is_valid_json(body)) {
    return invalid_request("The body is not a JSON object");
  }
  BatchRequest request;
  const auto text_of = [&](std::string_view name) {
    return openai::json_string(fields->value(name)).value_or("");
  };
  request.input_file_id = text_of("input_file_id");
  request.endpoint = text_of("endpoint");
  request.completion_window = text_of("completion_window");
  if (request.input_file_id.empty()) {
    return missing("input_file_id");
  }
  if (request.endpoint.empty()) {
    return missing("endpoint");
  }
  if (request.completion_window.empty()) {
    return missing("completion_window");
  }
  if (std::ranges::find(kEndpoints, request.endpoint) == std::end(kEndpoints)) {
    return invalid_request("It must be /v1/chat/completions, /v1/completions or /v1/embeddings",
                           "endpoint", "invalid_value");
  }
  const auto window = seconds_of(request.completion_window);
  // In whole seconds: a window of many years has more nanoseconds than a Duration holds.
  const int64_t most = std::chrono::duration_cast<std::chrono::seconds>(window_max).count();
  if (!window || *window > most) {
    return invalid_request(
        "It must be a time such as 24h, and at most " + std::to_string(most) + "s",
        "completion_window", "invalid_value");
  }
  request.window_seconds = *window;
  if (const auto value = fields->value("metadata"); given(value)) {
    PDJOB_TRY_STATUS(take_metadata(value, request.metadata));
  }
  if (const auto value = fields->value("output_expires_after"); given(value)) {
    PDJOB_TRY_STATUS(take_expiry(value, request.output_lifetime));
  }
  return request;
}

}  // namespace pdjob::batch
