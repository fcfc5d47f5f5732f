#include "router/relay/leg_head.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "net/http/http_parser.h"
#include "openai/headers.h"
#include "openai/openai_reply.h"

namespace pdjob::router {
namespace {

namespace header = openai::header;
using net::equal_ignoring_case;

constexpr std::array<std::string_view, 8> kHopByHop = {"connection",
                                                       "keep-alive",
                                                       "proxy-authenticate",
                                                       "proxy-authorization",
                                                       "proxy-connection",
                                                       "te",
                                                       "trailer",
                                                       "upgrade"};

// HttpClient makes these anew, or they are for the router alone. Accept-Encoding is here because
// the router reads prefill replies.
constexpr std::array<std::string_view, 16> kNotForWorkers = {"host",
                                                             "content-length",
                                                             "transfer-encoding",
                                                             "expect",
                                                             "accept-encoding",
                                                             header::kPinPrefill,
                                                             header::kPinDecode,
                                                             header::kContinue,
                                                             header::kTenant,
                                                             header::kBackground,
                                                             header::kProgress,
                                                             header::kKvStore,
                                                             header::kKvElsewhere,
                                                             header::kLeg,
                                                             header::kBatchTenant,
                                                             header::kDataParallelRank};

// The router makes these anew, or they are for the router alone.
constexpr std::array kMarks = {header::kRequestId,
                               header::kPrefill,
                               header::kDecode,
                               header::kDegraded,
                               header::kCache,
                               header::kKvSuspect,
                               std::string_view("access-control-allow-origin"),
                               std::string_view("access-control-allow-credentials"),
                               std::string_view("access-control-expose-headers"),
                               std::string_view("x-accel-buffering")};

// For the names of all marks, and a Connection line.
constexpr size_t kAddedBytes = 128;

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::any_of(names.begin(), names.end(),
                     [name](std::string_view one) { return equal_ignoring_case(name, one); });
}

// `Connection: a, b` makes a and b hop-by-hop too.
bool is_in_list(std::string_view name, std::string_view connection) {
  while (!connection.empty()) {
    const size_t comma = std::min(connection.find(','), connection.size());
    std::string_view token = connection.substr(0, comma);
    connection.remove_prefix(std::min(comma + 1, connection.size()));
    const size_t first = token.find_first_not_of(" \t");
    if (first == std::string_view::npos) {
      continue;
    }
    token = token.substr(first, token.find_last_not_of(" \t") - first + 1);
    if (equal_ignoring_case(token, name)) {
      return true;
    }
  }
  return false;
}

// Several Connection lines are possible.
bool named_by_connection(std::string_view name, std::span<const net::HttpHeader> from_first) {
  return std::ranges::any_of(from_first, [name](const net::HttpHeader& each) {
    return equal_ignoring_case(each.name, "connection") && is_in_list(name, each.value);
  });
}

void append_line(std::string& lines, std::string_view name, std::string_view value) {
  const size_t at = lines.size();
  lines.resize(at + name.size() + value.size() + 4);
  char* to = std::ranges::copy(name, lines.data() + at).out;
  to = std::ranges::copy(std::string_view(": "), to).out;
  to = std::ranges::copy(value, to).out;
  std::ranges::copy(std::string_view("\r\n"), to);
}

// Size of these lines, without those that the router adds.
size_t bytes_of(const std::vector<net::HttpHeader>& headers) {
  constexpr size_t kSeparators = 4;
  size_t bytes = 0;
  for (const net::HttpHeader& each : headers) {
    bytes += each.name.size() + each.value.size() + kSeparators;
  }
  return bytes;
}

void append_end_to_end(std::string& lines, const std::vector<net::HttpHeader>& headers,
                       const auto& drop) {
  const auto first = std::ranges::find_if(headers, [](const net::HttpHeader& each) {
    return equal_ignoring_case(each.name, "connection");
  });
  const std::span<const net::HttpHeader> from_first(first, headers.end());
  for (const net::HttpHeader& each : headers) {
    if (!is_one_of(each.name, kHopByHop) && !named_by_connection(each.name, from_first) &&
        !drop(each.name)) {
      append_line(lines, each.name, each.value);
    }
  }
}

}  // namespace

std::vector<std::string_view> headers_kept_from_workers() {
  std::vector<std::string_view> names(kHopByHop.begin(), kHopByHop.end());
  names.insert(names.end(), kNotForWorkers.begin(), kNotForWorkers.end());
  return names;
}

std::string leg_header_lines(const net::HttpRequest& request, const LegHead& how) {
  std::string lines;
  lines.reserve(bytes_of(request.headers) + kAddedBytes + how.tenant.size());
  append_end_to_end(lines, request.headers, [&how](std::string_view name) {
    return is_one_of(name, kNotForWorkers) || equal_ignoring_case(name, header::kRequestId) ||
           (how.own_key && equal_ignoring_case(name, "authorization")) ||
           (how.traced && equal_ignoring_case(name, "traceparent"));
  });
  if (!how.tenant.empty()) {
    append_line(lines, header::kTenant, how.tenant);
  }
  if (how.background) {
    append_line(lines, header::kBackground, "1");
  }
  return lines;
}

std::string reply_head(const net::HttpReplyHead& head, const ReplyMarks& marks,
                       ReplyFraming framing) {
  // An old worker's "HTTP/1.0 200 OK" becomes an HTTP/1.1 reply.
  std::string lines;
  lines.reserve(head.raw.size() + marks.request_id.size() + marks.prefill.size() +
                marks.decode.size() + marks.more.size() + kAddedBytes);
  lines.append("HTTP/1.1");
  const std::string_view status_line = head.raw.substr(0, head.raw.find("\r\n"));
  lines.append(status_line.substr(std::min(status_line.find(' '), status_line.size())))
      .append("\r\n");
  append_end_to_end(lines, head.headers, [framing](std::string_view name) {
    return is_one_of(name, kMarks) ||
           (framing == ReplyFraming::kUntilClose && equal_ignoring_case(name, "transfer-encoding"));
  });
  append_line(lines, header::kRequestId, marks.request_id);
  if (!marks.prefill.empty()) {
    append_line(lines, header::kPrefill, marks.prefill);
  }
  if (!marks.decode.empty()) {
    append_line(lines, header::kDecode, marks.decode);
  }
  if (const auto type = net::find_header(head.headers, "content-type");
      type.starts_with("text/event-stream")) {
    append_line(lines, openai::kUnbuffered.first, openai::kUnbuffered.second);
  }
  lines.append(marks.more);
  if (framing == ReplyFraming::kUntilClose) {
    append_line(lines, "Connection", "close");
  }
  lines.append("\r\n");
  return lines;
}

}  // namespace pdjob::router
