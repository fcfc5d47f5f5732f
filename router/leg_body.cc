#include "router/leg_body.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "common/parse_number.h"

namespace pdjob::router {
namespace {

// For a request that names no limit; only load estimates see it.
constexpr uint64_t kOutputTokensAssumed = 256;

constexpr std::array<std::string_view, 4> kOneWherePresent = {"max_completion_tokens", "min_tokens",
                                                              "n", "best_of"};
constexpr std::array<std::string_view, 16> kNames = {"model",
                                                     "max_tokens",
                                                     "max_completion_tokens",
                                                     "min_tokens",
                                                     "n",
                                                     "best_of",
                                                     "stream",
                                                     "stream_options",
                                                     "prompt",
                                                     "messages",
                                                     "user",
                                                     "kv_transfer_params",
                                                     "bootstrap_host",
                                                     "bootstrap_port",
                                                     "bootstrap_room",
                                                     "pdjob_resume"};

// All of them, also those that say nothing: a client must not name a source of KV.
std::array<net::JsonEdit, 4> kv_edits(const KvWords& kv) {
  return {{{"kv_transfer_params", kv.kv_transfer_params},
           {"bootstrap_host", kv.bootstrap_host},
           {"bootstrap_port", kv.bootstrap_port},
           {"bootstrap_room", kv.bootstrap_room}}};
}

uint64_t number_or_zero(std::string_view text) { return parse_number<uint64_t>(text).value_or(0); }

// Where the string or list that opens at text[0] ends: the position after it; npos if it does not.
size_t end_of_element(std::string_view text) {
  const char closing = text.front() == '[' ? ']' : '"';
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == closing) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// A list of strings or of token lists that goes on after its first element. A list of one is one
// prompt.
bool is_list_of_prompts(std::string_view prompt) {
  constexpr std::string_view kSpaces = " \t\r\n";
  if (!prompt.starts_with('[')) {
    return false;
  }
  const size_t first = prompt.find_first_not_of(kSpaces, 1);
  if (first == std::string_view::npos || (prompt[first] != '"' && prompt[first] != '[')) {
    return false;
  }
  const std::string_view from_first = prompt.substr(first);
  const size_t after = from_first.find_first_not_of(kSpaces, end_of_element(from_first));
  return after != std::string_view::npos && from_first[after] == ',';
}

}  // namespace

std::variant<RequestBody, net::ApiError> RequestBody::scan(std::string text) {
  RequestBody body;
  body.text_ = std::make_unique<const std::string>(std::move(text));
  auto object = net::JsonObject::scan(*body.text_, kNames);
  if (!object) {
    return net::to_api_error(object.error());
  }
  body.model_ = net::json_string(object->value("model")).value_or("");
  std::string_view limit = object->value("max_completion_tokens");
  limit = limit.empty() ? object->value("max_tokens") : limit;
  body.output_tokens_ = limit.empty() ? kOutputTokensAssumed : number_or_zero(limit);
  body.several_prompts_ = is_list_of_prompts(object->value("prompt"));
  body.object_ = std::move(*object);
  return body;
}

std::string_view RequestBody::prompt() const {
  const std::string_view prompt = object_->value("prompt");
  return prompt.empty() ? object_->value("messages") : prompt;
}

std::string RequestBody::prefill_leg(const KvWords& kv) const {
  std::vector<net::JsonEdit> edits;
  edits.reserve(kNames.size());
  edits.push_back({"max_tokens", "1"});
  edits.push_back({"stream_options", ""});
  for (const std::string_view name : kOneWherePresent) {
    if (!object_->value(name).empty()) {
      edits.push_back({name, "1"});
    }
  }
  if (!object_->value("stream").empty()) {
    edits.push_back({"stream", "false"});
  }
  std::ranges::copy(kv_edits(kv), std::back_inserter(edits));
  return object_->edited(edits);
}

std::string RequestBody::decode_leg(const KvWords& kv, std::string_view resume) const {
  const auto [params, host, port, room] = kv_edits(kv);
  const net::JsonEdit edits[] = {{"pdjob_resume", resume}, params, host, port, room};
  return object_->edited(edits);
}

}  // namespace pdjob::router
