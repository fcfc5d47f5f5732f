#include "net/http/reply_head.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace pdjob::net {
namespace {

struct Reason {
  int status;
  std::string_view phrase;
};
constexpr Reason kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string_view reason_phrase(int status) {
  const auto* const found = std::ranges::find(kReasons, status, &Reason::status);
  return found == std::end(kReasons) ? "Unknown" : found->phrase;
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  // A line break in a value would start another header.
  std::ranges::replace_copy_if(
      value, std::back_inserter(out), [](char c) { return c == '\r' || c == '\n' || c == '\0'; },
      ' ');
  out.append("\r\n");
}

const char* type_of(int status) {
  return status == 503   ? "overloaded_error"
         : status == 429 ? "rate_limit_error"
                         : "invalid_request_error";
}

}  // namespace

void append_number(std::string& out, size_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), end.ptr);
}

void append_reply_head(std::string& out, int status, std::string_view content_type,
                       const HeaderList& headers) {
  out.append("HTTP/1.1 ");
  append_number(out, static_cast<size_t>(status));
  out.append(" ").append(reason_phrase(status)).append("\r\n");
  if (!content_type.empty()) {
    append_header(out, "Content-Type", content_type);
  }
  for (const auto& [name, value] : headers) {
    append_header(out, name, value);
  }
}

HeaderList refusal_headers(const HttpRefusal& refusal) {
  HeaderList headers;
  if (refusal.retry_after_seconds > 0) {
    headers.emplace_back("Retry-After", std::to_string(refusal.retry_after_seconds));
  }
  if (const std::string_view codings = refusal.accept_encoding; !codings.empty()) {
    headers.emplace_back("Accept-Encoding", codings);
  }
  return headers;
}

std::string refusal_body(const HttpRefusal& refusal) {
  return std::string(R"({"error":{"message":")") + refusal.reason + R"(","type":")" +
         type_of(refusal.status) + R"(","param":null,"code":null}})";
}

std::pair<std::string, std::string> allow_header(std::span<const std::string_view> methods) {
  std::string value;
  for (const std::string_view method : methods) {
    value.append(value.empty() ? "" : ", ").append(method).append(method == "GET" ? ", HEAD" : "");
  }
  return {"Allow", std::move(value)};
}

}  // namespace pdjob::net
