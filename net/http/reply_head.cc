#include "net/http/reply_head.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace pdjob::net {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
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
