// What a trainer says over HTTP, and what it is answered: the control calls of SGLang, vLLM and
// prime-rl, and pdjob's own, as one kind of order (net::OrderAsked). Unknown members of a body are
// ignored, as those servers do. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/result.h"
#include "net/control/message.h"

namespace pdjob::router {

// The form of an answer.
enum class ControlForm : uint8_t {
  kFleet,         // pdjob's own.
  kMessage,       // SGLang: {"message", "status"}.
  kSuccess,       // SGLang: {"success", "message"}.
  kText,          // SGLang: text.
  kModelInfo,     // SGLang and vLLM: what is served.
  kServerInfo,    // The same, as one engine.
  kVersion,       // {"weight_version"}.
  kChecksum,      // SGLang: the digests of all workers.
  kPausedStatus,  // vLLM: {"status": "paused"}.
  kResumedStatus,
  kIsPaused,  // vLLM.
  kFlushed,   // vLLM: {"success"}.
  kWorldSize,
  kResults,   // vLLM: {"results"}.
  kStatusOk,  // prime-rl: {"status": "ok"}.
  kHealth,    // NeMo-RL: {"status", "total_backends", "control_fanout"}.
};

struct ControlCall {
  net::OrderAsked order;
  ControlForm form = ControlForm::kFleet;
};
struct ControlRefusal {
  int status = 400;
  std::string message;
  std::vector<std::string_view> methods = {};  // With 405: those of the path.
};

// The call asks for nothing that is still to be done.
struct ControlNoOp {
  std::string message;
};
using ControlAsk = std::variant<ControlCall, ControlNoOp>;

// A worker, as the router knows it.
struct ControlWorker {
  std::string name;
  std::string role;
  std::string standing;
  std::string weight_version;
  std::string digest;
};
struct ControlFacts {
  std::string model;  // The served name.
  std::vector<ControlWorker> workers;
};

// Methods and paths of all control calls, for the reference page. `*`: all that begin so.
std::vector<std::pair<std::string_view, std::string_view>> control_routes();

// True for each path that is a control call, whatever its method.
bool is_control_path(std::string_view path);

// `query`: without '?'. `body`: JSON, or empty.
Result<ControlAsk, ControlRefusal> parse_control(std::string_view method, std::string_view path,
                                                 std::string_view query, const std::string& body);

struct ControlReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};
ControlReply control_reply(ControlForm form, const net::OrderAnswered& answer,
                           const ControlFacts& facts);
ControlReply control_refusal(const ControlRefusal& refusal);
ControlReply control_done(const std::string& message);  // {"success", "message"}

}  // namespace pdjob::router
