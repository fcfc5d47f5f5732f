// The error half of openai.h: turns our error codes into an OpenAI client's view.
#include "common/json/json_writer.h"
#include "openai/openai.h"

namespace pdjob::openai {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";
constexpr const char* kServerError = "server_error";

struct HttpForm {
  int status;
  const char* type;
};

// Clients retry only on 408, 409, 429 and 5xx. A request that pdjob can never serve therefore gets
// 400 instead of 501.
HttpForm http_form(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {400, kInvalidRequest};
    case ErrorCode::kNotFound:
      return {404, kInvalidRequest};
    case ErrorCode::kOverloaded:
      return {503, "overloaded_error"};
    case ErrorCode::kUnavailable:
      return {503, kServerError};
    case ErrorCode::kTimeout:
      return {504, kServerError};
    case ErrorCode::kCancelled:
      return {499, "cancelled_error"};
    case ErrorCode::kPeerFailed:
      return {502, kServerError};
    case ErrorCode::kUnsupported:
      return {400, kInvalidRequest};
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      return {500, kServerError};
  }
  return {500, kServerError};
}

void append_text_or_null(JsonWriter& json, std::string_view text) {
  if (text.empty()) {
    json.null();
  } else {
    json.string(text);
  }
}

}  // namespace

ApiError to_api_error(const Error& error) {
  const HttpForm form = http_form(error.code);
  ApiError api_error{.status = form.status, .type = form.type, .message = error.message};
  if (error.code != ErrorCode::kInvalidArgument) {
    api_error.code = to_string(error.code);
  }
  return api_error;
}

ApiError invalid_request(std::string message, std::string param, std::string code, int status) {
  return {.status = status,
          .type = kInvalidRequest,
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

std::string error_body(const ApiError& error) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("error").begin_object();
  json.key("message").string(error.message);
  json.key("type").string(error.type);
  json.key("param");
  append_text_or_null(json, error.param);
  json.key("code");
  append_text_or_null(json, error.code);
  json.end_object().end_object();
  return body;
}

}  // namespace pdjob::openai
