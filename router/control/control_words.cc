#include "router/control/control_words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "net/http/reply_head.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

using net::OrderKind;
using net::PauseMode;

constexpr size_t kPathBytesMax = 1024;

// How a call's order is read.
enum class Words : uint8_t {
  kReport,
  kPauseBody,   // {"mode"}
  kPauseQuery,  // ?mode=
  kResume,
  kFlush,
  kRename,      // {"new_version"}
  kUpdateDisk,  // SGLang: {"model_path", "weight_version", ...}
  kUpdateDir,   // prime-rl: {"weight_dir"}
  kRpc,         // vLLM: {"method": "reload_weights", "kwargs"}
  kUpdateOwn,   // {"path", "version", "mode", "keep_pause"}
  kChecksum,    // {"action": "checksum"}
  kCancel,
  kNothingToDo,  // A step that one order makes for itself.
};

struct Route {
  std::string_view method;
  std::string_view path;
  Words words;
  ControlForm form;
};

constexpr Route kControlRoutes[] = {
    {"GET", "/v1/rl/fleet", Words::kReport, ControlForm::kFleet},
    {"POST", "/v1/rl/update", Words::kUpdateOwn, ControlForm::kFleet},
    {"POST", "/v1/rl/pause", Words::kPauseBody, ControlForm::kFleet},
    {"POST", "/v1/rl/resume", Words::kResume, ControlForm::kFleet},
    {"POST", "/v1/rl/flush", Words::kFlush, ControlForm::kFleet},
    {"POST", "/v1/rl/cancel", Words::kCancel, ControlForm::kFleet},
    {"POST", "/pause_generation", Words::kPauseBody, ControlForm::kMessage},
    {"POST", "/continue_generation", Words::kResume, ControlForm::kMessage},
    {"POST", "/update_weights_from_disk", Words::kUpdateDisk, ControlForm::kSuccess},
    {"POST", "/update_weight_version", Words::kRename, ControlForm::kSuccess},
    {"GET", "/flush_cache", Words::kFlush, ControlForm::kText},
    {"POST", "/flush_cache", Words::kFlush, ControlForm::kText},
    {"GET", "/model_info", Words::kReport, ControlForm::kModelInfo},
    {"GET", "/get_model_info", Words::kReport, ControlForm::kModelInfo},
    {"GET", "/get_weight_version", Words::kReport, ControlForm::kVersion},
    {"GET", "/server_info", Words::kReport, ControlForm::kServerInfo},
    {"GET", "/get_server_info", Words::kReport, ControlForm::kServerInfo},
    {"POST", "/weights_checker", Words::kChecksum, ControlForm::kChecksum},
    {"POST", "/pause", Words::kPauseQuery, ControlForm::kPausedStatus},
    {"POST", "/resume", Words::kResume, ControlForm::kResumedStatus},
    {"GET", "/is_paused", Words::kReport, ControlForm::kIsPaused},
    {"POST", "/reset_prefix_cache", Words::kFlush, ControlForm::kFlushed},
    {"GET", "/weight_info", Words::kReport, ControlForm::kVersion},
    {"GET", "/get_world_size", Words::kReport, ControlForm::kWorldSize},
    {"POST", "/collective_rpc", Words::kRpc, ControlForm::kResults},
    {"POST", "/update_weights", Words::kUpdateDir, ControlForm::kStatusOk},
    {"POST", "/begin_weight_update", Words::kNothingToDo, ControlForm::kSuccess},
    {"POST", "/end_weight_update", Words::kNothingToDo, ControlForm::kSuccess},
    {"POST", "/post_process_weights", Words::kNothingToDo, ControlForm::kSuccess},
    {"POST", "/areal_pause_generation", Words::kPauseBody, ControlForm::kSuccess},
    {"POST", "/areal_continue_generation", Words::kResume, ControlForm::kSuccess},
    {"POST", "/areal_update_weights", Words::kUpdateDisk, ControlForm::kSuccess},
};

constexpr const char* kDiskOnly =
    "pdjob takes weights from disk only: POST /update_weights_from_disk";
constexpr const char* kMemoryStays =
    "pdjob's workers keep their memory: this call has no meaning here";

// Calls of other servers that are only refused. `*`: whatever follows, but for the routes above.
struct RefusedPath {
  std::string_view pattern;
  const char* why;
  int status = 400;
};
constexpr RefusedPath kRefusedPaths[] = {
    {"/init_broadcaster", kDiskOnly, 404},  // Trainers go on without it after a 404.
    {"/init_weight*", kDiskOnly},
    {"/start_weight_update", kDiskOnly},
    {"/finish_weight_update", kDiskOnly},
    {"/update_weights_from_*", kDiskOnly},
    {"/destroy_weights_update_group", kDiskOnly},
    {"/pull_weights", kDiskOnly},
    {"/areal_*", kDiskOnly},
    {"/release_memory_occupation", kMemoryStays},
    {"/resume_memory_occupation", kMemoryStays},
    {"/sleep", kMemoryStays},
    {"/wake_up", kMemoryStays},
};

// Null: the path is none of them.
const RefusedPath* refused_path(std::string_view path) {
  const auto* const found = std::ranges::find_if(kRefusedPaths, [&](const RefusedPath& each) {
    const std::string_view pattern = each.pattern;
    return pattern.ends_with('*') ? path.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : path == pattern;
  });
  return found == std::end(kRefusedPaths) ? nullptr : found;
}

constexpr std::array<std::string_view, 15> kMembers = {
    "mode",       "model_path",  "weight_version", "abort_all_requests",
    "keep_pause", "new_version", "weight_dir",     "update_info",
    "method",     "args",        "kwargs",         "path",
    "version",    "action",      "weights_path"};

using Body = openai::JsonObject;

std::optional<std::string> text_of(const Body& body, std::string_view name) {
  return openai::json_string(body.value(name));
}

bool is_true(const Body& body, std::string_view name, bool otherwise = false) {
  const std::string_view value = body.value(name);
  return value.empty() || value == "null" ? otherwise : value == "true";
}

std::optional<PauseMode> mode_of(std::string_view word) {
  if (word == "abort") {
    return PauseMode::kAbort;
  }
  if (word == "wait") {
    return PauseMode::kWait;
  }
  // KV of old weights is never used again, so all three mean the same here.
  if (word == "retract" || word == "keep" || word == "in_place") {
    return PauseMode::kRetract;
  }
  return std::nullopt;
}

// "mode=keep&clear_cache=false"
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name) {
      return equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    }
  }
  return {};
}

ControlRefusal wrong(std::string message) { return {.status = 400, .message = std::move(message)}; }

Result<Done, ControlRefusal> set_mode(std::string_view word, PauseMode otherwise,
                                      net::OrderAsked& order) {
  const auto mode = word.empty() ? std::optional(otherwise) : mode_of(word);
  if (!mode) {
    return wrong("mode must be abort, wait, retract, keep or in_place, got " + std::string(word));
  }
  order.mode = *mode;
  return ok();
}

// They go to logs and terminals.
bool has_control_characters(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

Result<Done, ControlRefusal> set_path(const std::optional<std::string>& path, const char* name,
                                      net::OrderAsked& order) {
  if (!path || path->empty()) {
    return wrong(std::string(name) +
                 " must name a .gguf file or a folder below rollout.weights_dir");
  }
  if (path->size() > kPathBytesMax) {
    return wrong(std::string(name) + " has at most " + std::to_string(kPathBytesMax) + " bytes");
  }
  if (has_control_characters(*path)) {
    return wrong(std::string(name) + " has control characters");
  }
  order.path = *path;
  return ok();
}

Result<Done, ControlRefusal> set_version(const Body& body, std::string_view name,
                                         net::OrderAsked& order) {
  const std::string_view value = body.value(name);
  if (value.empty() || value == "null") {
    return ok();
  }
  const auto text = openai::json_string(value);
  if (!text && (value.starts_with('{') || value.starts_with('['))) {
    return wrong(std::string(name) + " must be a string or a number");
  }
  order.version = text ? *text : std::string(value);  // Some trainers send a number.
  if (order.version.size() > limits::kWeightVersionBytesMax) {
    return wrong(std::string(name) + " has at most " +
                 std::to_string(limits::kWeightVersionBytesMax) + " bytes");
  }
  if (has_control_characters(order.version)) {
    return wrong(std::string(name) + " has control characters");
  }
  return ok();
}

// vLLM: reload_weights(weights_path=...)
Result<Done, ControlRefusal> read_rpc(const Body& body, net::OrderAsked& order) {
  if (text_of(body, "method") != "reload_weights") {
    return wrong("collective_rpc knows the method reload_weights only");
  }
  const std::string kwargs(body.value("kwargs"));
  if (const auto members = Body::scan(kwargs, kMembers)) {
    for (const char* name : {"weights_path", "weight_dir", "model_path", "path"}) {
      if (const auto path = text_of(*members, name)) {
        return set_path(path, name, order);
      }
    }
  }
  return wrong("reload_weights needs kwargs.weights_path");
}

Result<Done, ControlRefusal> read_body(Words words, const Body& body, net::OrderAsked& order) {
  const std::string mode = text_of(body, "mode").value_or("");
  switch (words) {
    case Words::kPauseBody:
      return set_mode(mode, PauseMode::kAbort, order);
    case Words::kRename:
      order.mode = is_true(body, "abort_all_requests", true) ? PauseMode::kAbort : PauseMode::kWait;
      return set_version(body, "new_version", order);
    case Words::kUpdateDisk:
      order.mode = is_true(body, "abort_all_requests") ? PauseMode::kAbort : PauseMode::kWait;
      order.keeps_pause = is_true(body, "keep_pause");
      PDJOB_TRY_STATUS(set_version(body, "weight_version", order));
      return set_path(text_of(body, "model_path"), "model_path", order);
    case Words::kUpdateDir:
      if (!body.value("update_info").empty()) {
        return wrong("pdjob takes weights from disk only: name a file as weight_dir");
      }
      PDJOB_TRY_STATUS(set_version(body, "weight_version", order));
      return set_path(text_of(body, "weight_dir"), "weight_dir", order);
    case Words::kUpdateOwn:
      order.keeps_pause = is_true(body, "keep_pause");
      PDJOB_TRY_STATUS(set_mode(mode, PauseMode::kRetract, order));
      PDJOB_TRY_STATUS(set_version(body, "version", order));
      return set_path(text_of(body, "path"), "path", order);
    case Words::kRpc:
      return read_rpc(body, order);
    case Words::kChecksum:
      if (text_of(body, "action").value_or("checksum") != "checksum") {
        return wrong("weights_checker knows the action checksum only");
      }
      break;
    case Words::kReport:
    case Words::kPauseQuery:
    case Words::kResume:
    case Words::kFlush:
    case Words::kCancel:
    case Words::kNothingToDo:
      break;
  }
  return ok();
}

OrderKind kind_of(Words words) {
  switch (words) {
    case Words::kPauseBody:
    case Words::kPauseQuery:
      return OrderKind::kPause;
    case Words::kResume:
      return OrderKind::kResume;
    case Words::kFlush:
      return OrderKind::kFlush;
    case Words::kRename:
      return OrderKind::kRename;
    case Words::kUpdateDisk:
    case Words::kUpdateDir:
    case Words::kUpdateOwn:
    case Words::kRpc:
      return OrderKind::kUpdate;
    case Words::kCancel:
      return OrderKind::kCancel;
    case Words::kReport:
    case Words::kChecksum:
    case Words::kNothingToDo:
      break;
  }
  return OrderKind::kReport;
}

void append_fleet(JsonWriter& json, const net::OrderAnswered& answer, const ControlFacts& facts) {
  json.key("message").string(answer.message);
  json.key("weight_version").string(answer.weights.version);
  json.key("path").string(answer.weights.path);
  json.key("digest").string(answer.weights.digest);
  json.key("paused").boolean(answer.paused);
  json.key("mode").string(to_string(answer.mode));
  json.key("updates").integer(answer.updates);
  json.key("workers_total").integer(answer.workers);
  json.key("workers_serving").integer(answer.serving);
  json.key("workers").begin_array();
  for (const ControlWorker& worker : facts.workers) {
    json.begin_object();
    json.key("name").string(worker.name);
    json.key("role").string(worker.role);
    json.key("standing").string(worker.standing);
    json.key("weight_version").string(worker.weight_version);
    json.key("digest").string(worker.digest);
    json.end_object();
  }
  json.end_array();
  json.key("cordoned").begin_array();
  for (const net::WorkerTrouble& trouble : answer.troubles) {
    json.begin_object();
    json.key("worker").string(trouble.worker);
    json.key("why").string(trouble.why);
    json.end_object();
  }
  json.end_array();
}

// The whole fleet as one engine.
void append_engine(JsonWriter& json, const net::OrderAnswered& answer, const ControlFacts& facts) {
  json.key("model_path").string(answer.weights.path.empty() ? facts.model : answer.weights.path);
  json.key("tokenizer_path").string(facts.model);
  json.key("served_model_name").string(facts.model);
  json.key("is_generation").boolean(true);
  json.key("weight_version").string(answer.weights.version);
  json.key("disaggregation_mode").string("null");
}

void append_server(JsonWriter& json, const net::OrderAnswered& answer, const ControlFacts& facts) {
  append_engine(json, answer, facts);
  for (const char* size : {"tp_size", "pp_size", "dp_size", "ep_size", "num_gpus"}) {
    json.key(size).integer(1);
  }
  json.key("disaggregation_bootstrap_port").null();
  json.key("enable_memory_saver").boolean(false);
  json.key("internal_states").begin_array().end_array();
  json.key("vllm_config").begin_object();
  json.key("weight_transfer_config").null();
  json.end_object();
}

void append_checksum(JsonWriter& json, const ControlFacts& facts) {
  std::set<std::string> digests;
  for (const ControlWorker& worker : facts.workers) {
    digests.insert(worker.digest);
  }
  json.key("success").boolean(digests.size() == 1);
  json.key("message").string(digests.size() == 1 ? "all workers have the same weights"
                                                 : "the workers' weights differ, or none serves");
  json.key("per_engine_checksum").string(digests.size() == 1 ? *digests.begin() : "");
  json.key("ranks").begin_array();
  for (const ControlWorker& worker : facts.workers) {
    json.begin_object();
    json.key("name").string(worker.name);
    json.key("checksum").string(worker.digest);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> control_routes() {
  std::vector<std::pair<std::string_view, std::string_view>> routes;
  for (const Route& route : kControlRoutes) {
    routes.emplace_back(route.method, route.path);
  }
  for (const RefusedPath& refused : kRefusedPaths) {
    routes.emplace_back("POST", refused.pattern);
  }
  return routes;
}

bool is_control_path(std::string_view path) {
  return std::ranges::any_of(kControlRoutes,
                             [&](const Route& route) { return route.path == path; }) ||
         refused_path(path) != nullptr;
}

Result<ControlAsk, ControlRefusal> parse_control(std::string_view method, std::string_view path,
                                                 std::string_view query, const std::string& body) {
  const auto* const route = std::ranges::find_if(kControlRoutes, [&](const Route& each) {
    return each.path == path && each.method == method;
  });
  if (route == std::end(kControlRoutes)) {
    ControlRefusal refusal{
        .status = 405,
        .message = "method not allowed: " + std::string(method) + ' ' + std::string(path)};
    for (const Route& each : kControlRoutes) {
      if (each.path == path) {
        refusal.methods.push_back(each.method);
      }
    }
    if (const RefusedPath* refused = refused_path(path);
        refused != nullptr && refusal.methods.empty()) {
      if (method == "POST") {
        return ControlRefusal{.status = refused->status, .message = refused->why};
      }
      refusal.methods = {"POST"};
    }
    return refusal;
  }
  if (route->words == Words::kNothingToDo) {
    return ControlAsk(
        ControlNoOp{"nothing to do: POST /update_weights_from_disk is a whole update"});
  }
  ControlCall call{.order = {.kind = kind_of(route->words)}, .form = route->form};
  if (route->words == Words::kPauseQuery) {
    PDJOB_TRY_STATUS(set_mode(query_value(query, "mode"), PauseMode::kAbort, call.order));
    return ControlAsk(std::move(call));
  }
  const std::string text = body.empty() ? "{}" : body;
  const auto members = Body::scan(text, kMembers);
  if (!members) {
    return wrong("the body is not a JSON object: " + members.error().message);
  }
  PDJOB_TRY_STATUS(read_body(route->words, *members, call.order));
  return ControlAsk(std::move(call));
}

ControlReply control_done(const std::string& message) {
  ControlReply reply{.status = 200, .body = {}};
  JsonWriter json(reply.body);
  json.begin_object();
  json.key("success").boolean(true);
  json.key("message").string(message);
  json.end_object();
  return reply;
}

ControlReply control_refusal(const ControlRefusal& refusal) {
  ControlReply reply{.status = refusal.status, .body = {}};
  JsonWriter json(reply.body);
  json.begin_object();
  json.key("success").boolean(false);
  json.key("message").string(refusal.message);
  json.key("error").string(refusal.message);
  json.end_object();
  if (!refusal.methods.empty()) {
    reply.headers = {net::allow_header(refusal.methods)};
  }
  return reply;
}

ControlReply control_reply(ControlForm form, const net::OrderAnswered& answer,
                           const ControlFacts& facts) {
  const bool well = answer.status == 200;
  if (!well && form != ControlForm::kFleet && form != ControlForm::kSuccess &&
      form != ControlForm::kText && form != ControlForm::kFlushed) {
    return control_refusal({.status = answer.status, .message = answer.message});
  }
  ControlReply reply{.status = answer.status, .body = {}};
  if (form == ControlForm::kText) {
    reply.content_type = "text/plain; charset=utf-8";
    reply.body = well ? "Cache flushed.\n" : answer.message + "\n";
    return reply;
  }
  JsonWriter json(reply.body);
  json.begin_object();
  switch (form) {
    case ControlForm::kFleet:
      reply.status = well && !answer.troubles.empty() ? 207 : answer.status;
      append_fleet(json, answer, facts);
      break;
    case ControlForm::kMessage:
      json.key("message").string(answer.message);
      json.key("status").string("ok");
      break;
    case ControlForm::kSuccess:
      json.key("success").boolean(well);
      json.key("message").string(answer.message);
      json.key("new_version").string(answer.weights.version);
      json.key("num_paused_requests").integer(0);
      break;
    case ControlForm::kModelInfo:
      append_engine(json, answer, facts);
      break;
    case ControlForm::kServerInfo:
      append_server(json, answer, facts);
      break;
    case ControlForm::kVersion:
      json.key("weight_version").string(answer.weights.version);
      break;
    case ControlForm::kChecksum:
      append_checksum(json, facts);
      break;
    case ControlForm::kPausedStatus:
    case ControlForm::kResumedStatus:
      json.key("status").string(form == ControlForm::kPausedStatus ? "paused" : "resumed");
      break;
    case ControlForm::kIsPaused:
      json.key("is_paused").boolean(answer.paused);
      break;
    case ControlForm::kFlushed:
      reply.status = 200;
      json.key("success").boolean(well);
      break;
    case ControlForm::kWorldSize:
      json.key("world_size").integer(1);
      break;
    case ControlForm::kResults:
      json.key("results").begin_array().null().end_array();
      break;
    case ControlForm::kStatusOk:
      json.key("status").string("ok");
      break;
    case ControlForm::kHealth:
      json.key("status").string("ok");
      json.key("total_backends").integer(answer.workers);
      json.key("control_fanout").boolean(true);
      break;
    case ControlForm::kText:
      break;
  }
  json.end_object();
  return reply;
}

}  // namespace pdjob::router
