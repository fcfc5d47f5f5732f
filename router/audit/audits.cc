#include "router/audit/audits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::router {
namespace {

constexpr size_t kPairsMax = 1024;

bool is_idle(std::string_view value) {
  return value.empty() || value == "null" || value == "[]" || value == "false" || value == "{}";
}

}  // namespace

std::optional<std::string> audit_body(std::string_view path, const std::string& body) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"temperature", "n", "best_of", "echo", "use_beam_search", "tools", "stream",
       "stream_options", "logprobs", "top_logprobs", "prompt_logprobs", "prompt", "seed",
       "return_token_ids", "return_tokens_as_token_ids", "pdjob_resume"});
  static constexpr openai::JsonNames kScanned{kNames};
  const bool chat = path == "/v1/chat/completions";
  const auto object = openai::JsonObject::scan(body, kScanned);
  if ((!chat && path != "/v1/completions") || !object ||
      openai::json_integer(object->value("temperature")) != 0) {
    return std::nullopt;
  }
  for (const std::string_view name : {"n", "best_of"}) {
    if (!is_idle(object->value(name)) && openai::json_integer(object->value(name)) != 1) {
      return std::nullopt;
    }
  }
  for (const std::string_view name : {"echo", "use_beam_search", "tools", "prompt_logprobs",
                                      "return_tokens_as_token_ids", "pdjob_resume"}) {
    if (!is_idle(object->value(name))) {
      return std::nullopt;
    }
  }
  const std::string_view prompt = object->value("prompt");
  const bool several = prompt.find('[', 1) != std::string_view::npos && prompt.starts_with('[');
  if (several || (prompt.starts_with('[') && prompt.find('"') != std::string_view::npos)) {
    return std::nullopt;
  }
  const openai::JsonEdit edits[] = {{"stream", "false"},
                                    {"stream_options", ""},
                                    {"logprobs", chat ? "true" : "2"},
                                    {"top_logprobs", chat ? "2" : ""},
                                    {"return_token_ids", ""}};
  return object->edited(edits);
}

std::string with_salt(const std::string& body, uint64_t salt) {
  const std::string value = "\"pdjob-audit-" + std::to_string(salt) + "\"";
  const openai::JsonEdit edits[] = {{"cache_salt", value}};
  if (auto edited = openai::edit_json_object(body, edits)) {
    return *std::move(edited);
  }
  return body;
}

Finding compare(const openai::ReplyText& first, const openai::ReplyText& second, double tie) {
  if (first.text == second.text) {
    return {.result = AuditResult::kEqual};
  }
  const auto parted = std::ranges::mismatch(first.text, second.text);
  const auto common = static_cast<size_t>(parted.in2 - second.text.begin());
  size_t end = 0;
  for (size_t position = 0; position < second.tokens.size(); ++position) {
    end += second.tokens[position].text.size();
    // A token without text, such as an end, parts them where all the text is equal.
    if (end > common || position + 1 == second.tokens.size()) {
      const double margin = second.tokens[position].margin;
      return {.result = margin <= tie ? AuditResult::kTie : AuditResult::kDiffers,
              .position = position,
              .margin = margin};
    }
  }
  return {.result = AuditResult::kFailed};  // Without logprobs, a tie cannot be ruled out.
}

bool Audits::chooses(uint64_t chance) const {
  constexpr double kRange = 18446744073709551616.0;  // 2^64
  return static_cast<double>(chance) < config_.share * kRange;
}

size_t Audits::add(Audited audited, Instant now) {
  waiting_.push_back({std::move(audited), now});
  const size_t dropped = waiting_.size() > kWaitingMax ? 1 : 0;
  if (dropped > 0) {
    waiting_.pop_front();
  }
  return dropped;
}

size_t Audits::expire(Instant now) {
  const size_t before = waiting_.size();
  while (!waiting_.empty() && waiting_.front().since + kWaitMax <= now) {
    waiting_.pop_front();
  }
  return before - waiting_.size();
}

std::optional<Audited> Audits::next(bool is_quiet) {
  if (running_ || !is_quiet || waiting_.empty()) {
    return std::nullopt;
  }
  running_ = true;
  Audited audited = std::move(waiting_.front().audited);
  waiting_.pop_front();
  return audited;
}

bool Audits::ended(const Audited& audited, const Finding& finding, Instant now) {
  running_ = false;
  if (finding.result != AuditResult::kDiffers) {
    return false;
  }
  if (mismatches_.size() >= kPairsMax) {
    mismatches_.clear();
  }
  std::deque<Instant>& times = mismatches_[{audited.prefill, audited.decode}];
  times.push_back(now);
  while (times.front() + kRemembered < now) {
    times.pop_front();
  }
  return times.size() >= config_.mismatches;
}

}  // namespace pdjob::router
