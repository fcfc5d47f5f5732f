#include "launcher/look/status_page.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "openai/json/json_edit.h"

namespace pdjob::launcher {
namespace {

using openai::JsonObject;

std::string string_of(const JsonObject& object, std::string_view name) {
  return openai::json_string(object.value(name)).value_or("");
}

template <class Number>
Number number_of(const JsonObject& object, std::string_view name) {
  const std::string_view text = object.value(name);
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<net::WorkerLoad> load_of(std::string_view text) {
  static constexpr std::string_view kNames[] = {
      "requests_running", "requests_queued",   "tokens_queued",
      "kv_rows_used",     "kv_rows_max",       "tokens_computed",
      "busy_us",          "ttft_us",           "itl_us",
      "ttft_sum_us",      "ttft_count",        "itl_sum_us",
      "itl_count",        "lending_rests_now", "background_requests",
      "queue_us",         "prefill_us",        "kv_us"};
  const std::string whole(text.empty() ? "{}" : text);
  PDJOB_TRY(const JsonObject load, JsonObject::scan(whole, kNames));
  const auto count = [&load](std::string_view name) { return number_of<uint64_t>(load, name); };
  return net::WorkerLoad{.requests_running = number_of<uint32_t>(load, "requests_running"),
                         .requests_queued = number_of<uint32_t>(load, "requests_queued"),
                         .tokens_queued = count("tokens_queued"),
                         .kv_rows_used = count("kv_rows_used"),
                         .kv_rows_max = count("kv_rows_max"),
                         .ttft_us = count("ttft_us"),
                         .itl_us = count("itl_us"),
                         .phases = {.queue_us = count("queue_us"),
                                    .prefill_us = count("prefill_us"),
                                    .kv_us = count("kv_us")},
                         .tokens_computed = count("tokens_computed"),
                         .busy_us = count("busy_us"),
                         .ttft_sum_us = count("ttft_sum_us"),
                         .ttft_count = count("ttft_count"),
                         .itl_sum_us = count("itl_sum_us"),
                         .itl_count = count("itl_count"),
                         .lending_rests_now = load.value("lending_rests_now") == "true",
                         .background_requests = number_of<uint32_t>(load, "background_requests")};
}

Result<ProcessLine> process_of(const std::string& text) {
  static constexpr std::string_view kNames[] = {
      "name",  "role",     "engine_id",        "url",  "state",   "node",         "suspected",
      "spare", "restarts", "seconds_in_state", "load", "starved", "starved_share"};
  PDJOB_TRY(const JsonObject object, JsonObject::scan(text, kNames));
  PDJOB_TRY(const net::WorkerLoad load, load_of(object.value("load")));
  return ProcessLine{.name = string_of(object, "name"),
                     .role = string_of(object, "role"),
                     .state = string_of(object, "state"),
                     .engine_id = string_of(object, "engine_id"),
                     .url = string_of(object, "url"),
                     .node = string_of(object, "node"),
                     .suspected = object.value("suspected") == "true",
                     .spare = object.value("spare") == "true",
                     .starved = object.value("starved") == "true",
                     .starved_share = number_of<double>(object, "starved_share"),
                     .restarts = number_of<uint64_t>(object, "restarts"),
                     .in_state = std::chrono::seconds(
                         static_cast<int64_t>(number_of<double>(object, "seconds_in_state"))),
                     .load = load};
}

}  // namespace

Result<StatusPage> read_status(const std::string& status_json) {
  static constexpr std::string_view kNames[] = {"job", "state", "url", "launcher_pid", "processes"};
  const auto status = JsonObject::scan(status_json, kNames);
  if (!status || status->value("processes").empty()) {
    return Error{ErrorCode::kCorrupt, "this is not the status of a job"};
  }
  StatusPage page{.job = string_of(*status, "job"),
                  .state = string_of(*status, "state"),
                  .url = string_of(*status, "url"),
                  .launcher_pid = number_of<int64_t>(*status, "launcher_pid"),
                  .processes = {}};
  for (const std::string& text : openai::json_array_items(status->value("processes"))) {
    PDJOB_TRY(ProcessLine process, process_of(text));
    page.processes.push_back(std::move(process));
  }
  return page;
}

}  // namespace pdjob::launcher
