#include "router/members/worker_description.h"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <string_view>

#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

using openai::JsonObject;

std::string string_or_empty(std::string_view value) {
  return openai::json_string(value).value_or("");
}

void take_number(std::string_view value, std::unsigned_integral auto& number) {
  std::from_chars(value.data(), value.data() + value.size(), number);
}

net::WorkerLoad parse_load(std::string_view value) {
  static constexpr std::string_view kNames[] = {"requests_running", "requests_queued",
                                                "tokens_queued", "kv_rows_used", "kv_rows_max"};
  net::WorkerLoad load;
  const std::string text(value);
  if (const auto object = JsonObject::scan(text, kNames)) {
    take_number(object->value("requests_running"), load.requests_running);
    take_number(object->value("requests_queued"), load.requests_queued);
    take_number(object->value("tokens_queued"), load.tokens_queued);
    take_number(object->value("kv_rows_used"), load.kv_rows_used);
    take_number(object->value("kv_rows_max"), load.kv_rows_max);
  }
  return load;
}

net::Role parse_role(std::string_view value) {
  const std::string word = string_or_empty(value);
  if (word == "prefill") {
    return net::Role::kPrefill;
  }
  return word == "decode" ? net::Role::kDecode : net::Role::kBoth;
}

}  // namespace

Result<WorkerDescription> parse_worker_description(const std::string& body) {
  static constexpr std::string_view kNames[] = {
      "name", "engine_id", "role",        "model",         "draining", "kv_address",
      "load", "abort",     "local_links", "max_model_len", "created",  "fingerprint"};
  PDJOB_TRY(const JsonObject object, JsonObject::scan(body, kNames));
  WorkerDescription described;
  described.entry.name = string_or_empty(object.value("name"));
  if (described.entry.name.empty()) {
    return Error{ErrorCode::kCorrupt, "it says no name"};
  }
  described.entry.engine_id = string_or_empty(object.value("engine_id"));
  described.entry.role = parse_role(object.value("role"));
  described.entry.model = string_or_empty(object.value("model"));
  const std::string_view kv_address = object.value("kv_address");
  described.entry.kv_address = kv_address.starts_with('{') ? kv_address : "";
  described.entry.protocol = net::Protocol::kPdjob;
  described.entry.abort = string_or_empty(object.value("abort"));
  described.entry.local_links = object.value("local_links") == "true";
  described.entry.fingerprint = string_or_empty(object.value("fingerprint"));
  take_number(object.value("max_model_len"), described.entry.context_max);
  take_number(object.value("created"), described.entry.created);
  described.draining = object.value("draining") == "true";
  described.load = parse_load(object.value("load"));
  return described;
}

}  // namespace pdjob::router
