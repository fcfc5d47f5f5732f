#include "batch/row_reply.h"

#include <algorithm>
#include <cstdint>

#include "common/parse_number.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {

std::string joined_target(const std::string& base, const std::string& target) {
  const std::string_view trimmed = std::string_view(base).substr(0, base.find_last_not_of('/') + 1);
  constexpr std::string_view kVersion = "/v1";
  return std::string(trimmed.ends_with(kVersion)
                         ? trimmed.substr(0, trimmed.size() - kVersion.size())
                         : trimmed) +
         target;
}

Duration retry_after_of(std::string_view header) {
  constexpr Duration kMax = std::chrono::minutes(10);
  const auto given = parse_number<uint32_t>(header);
  return given ? std::min<Duration>(std::chrono::seconds(*given), kMax) : Duration{};
}

Outcome outcome_of_status(int status) {
  switch (status) {
    case 429:
    case 503:
      return Outcome::kBusy;
    case 502:
      return Outcome::kLost;  // A connection broke behind the server.
    case 408:
    case 409:
    case 425:
      return Outcome::kBroken;
    default:
      return status / 100 == 2   ? Outcome::kAnswered
             : status / 100 == 5 ? Outcome::kBroken
                                 : Outcome::kRefused;
  }
}

void judge_reply(RowResult& result) {
  result.outcome = outcome_of_status(result.status);
  if (!openai::is_valid_json(result.body)) {
    result.body.clear();
    if (result.outcome == Outcome::kAnswered) {
      result.outcome = Outcome::kBroken;
      result.cause = "bad_reply";
      result.message = "the reply is not JSON";
    }
  }
  if (result.outcome != Outcome::kAnswered && result.cause.empty()) {
    result.cause = "http_" + std::to_string(result.status);
    result.message = "the server answered with status " + std::to_string(result.status);
  }
  if (result.refuses_key()) {
    result.hopeless = "the server refuses the key (status " + std::to_string(result.status) + ")";
  }
}

void set_no_reply(RowResult& result, Outcome outcome, const char* cause,
                  const std::string& message) {
  result.outcome = outcome;
  result.status = 0;
  result.body.clear();
  result.cause = cause;
  result.message = message;
}

}  // namespace pdjob::batch
