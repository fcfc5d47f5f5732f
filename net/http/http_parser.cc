#include "net/http/http_parser.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "common/limits.h"

namespace pdjob::net {
namespace {

using Refused = std::optional<HttpRefusal>;

// Extensions and trailers of one chunked body. They are rare in practice, so the bound is small.
// Many chunks with short extensions still fit.
constexpr size_t kChunkLineBytesMax = limits::kHttpHeadBytesMax;
// 15 hexadecimal digits stay far from overflow.
constexpr size_t kChunkDigitsMax = 15;
constexpr size_t kLengthDigitsMax = 18;

HttpRefusal bad(const char* reason) { return {400, reason}; }

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (const char c : std::string_view("!#$%&'*+-.^_`|~0123456789"
                                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kTokenChars = make_token_table();

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return kTokenChars[static_cast<unsigned char>(c)];
  });
}
bool is_visible(char c) { return c > 0x20 && c < 0x7f; }
// RFC 9110 field-value: visible, space, tab and obs-text.
bool is_field_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

// Cuts the first line off `bytes`, which end in an empty line.
std::string_view take_line(std::string_view& bytes) {
  const size_t end = bytes.find("\r\n");
  const std::string_view line = bytes.substr(0, end);
  bytes.remove_prefix(end + 2);
  return line;
}

bool has_list_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (equal_ignoring_case(trim(list.substr(0, comma)), item)) {
      return true;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

Refused parse_length(std::string_view digits, uint64_t& length) {
  length = 0;
  if (digits.empty() || digits.size() > kLengthDigitsMax) {
    return bad("malformed Content-Length");
  }
  for (const char c : digits) {
    if (c < '0' || c > '9') {
      return bad("malformed Content-Length");
    }
    length = length * 10 + static_cast<uint64_t>(c - '0');
  }
  return std::nullopt;
}

Refused parse_header_lines(std::string_view bytes, std::vector<HttpHeader>& headers) {
  headers.clear();
  for (std::string_view line = take_line(bytes); !line.empty(); line = take_line(bytes)) {
    if (headers.size() == limits::kHttpHeadersMax) {
      return HttpRefusal{431, "too many header fields"};
    }
    const size_t colon = line.find(':');
    // A folded line, a space before the colon and a missing colon all give a name that is not a
    // token.
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
      return bad("malformed header field name");
    }
    const std::string_view value = trim(line.substr(colon + 1));
    if (!std::ranges::all_of(value, is_field_char)) {
      return bad("malformed header field value");
    }
    headers.push_back({line.substr(0, colon), value});
  }
  return std::nullopt;
}

// The headers' statements on body and connection, the same for both directions.
struct Framing {
  bool has_length = false;
  bool chunked = false;
  uint64_t length = 0;
  bool keep_alive = true;
};

Refused read_framing(const std::vector<HttpHeader>& headers, bool is_http_1_0, Framing& framing) {
  framing.keep_alive = !is_http_1_0;
  bool closes = false;
  for (const HttpHeader& header : headers) {
    if (equal_ignoring_case(header.name, "content-length")) {
      uint64_t length = 0;
      if (const Refused refused = parse_length(header.value, length)) {
        return refused;
      }
      if (framing.has_length && length != framing.length) {
        return bad("several Content-Length fields that differ");
      }
      framing.has_length = true;
      framing.length = length;
    } else if (equal_ignoring_case(header.name, "transfer-encoding")) {
      if (framing.chunked || is_http_1_0) {
        return bad("unexpected Transfer-Encoding");
      }
      if (!equal_ignoring_case(header.value, "chunked")) {
        return HttpRefusal{501, "Transfer-Encoding other than chunked"};
      }
      framing.chunked = true;
    } else if (equal_ignoring_case(header.name, "connection")) {
      closes = closes || has_list_item(header.value, "close");
      framing.keep_alive = framing.keep_alive || has_list_item(header.value, "keep-alive");
    }
  }
  if (framing.has_length && framing.chunked) {
    return bad("both Content-Length and Transfer-Encoding");
  }
  framing.keep_alive = framing.keep_alive && !closes;
  return std::nullopt;
}

Refused parse_version(std::string_view text, bool& is_http_1_0) {
  const bool well_formed = text.size() == 8 && text.starts_with("HTTP/") && text[6] == '.' &&
                           text[5] >= '0' && text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
  if (!well_formed) {
    return bad("malformed request line");
  }
  if (text != "HTTP/1.1" && text != "HTTP/1.0") {
    return HttpRefusal{505, "HTTP version other than 1.0 and 1.1"};
  }
  is_http_1_0 = text.back() == '0';
  return std::nullopt;
}

// Origin form, absolute form (as to a proxy; we are its authority), or "*" of OPTIONS.
Refused parse_target(std::string_view target, RequestHead& head) {
  if (target.empty() || !std::ranges::all_of(target, is_visible) ||
      target.find('#') != target.npos) {
    return bad("malformed request target");
  }
  constexpr std::string_view kScheme = "http://";
  if (target.size() > kScheme.size() &&
      equal_ignoring_case(target.substr(0, kScheme.size()), kScheme)) {
    const size_t slash = target.find('/', kScheme.size());
    if (slash == kScheme.size() || target.substr(0, slash).find('?') != target.npos) {
      return bad("malformed request target");
    }
    target = slash == target.npos ? std::string_view("/") : target.substr(slash);
  }
  const bool is_asterisk = target == "*" && head.method == "OPTIONS";
  if (target.front() != '/' && !is_asterisk) {
    return bad("malformed request target");
  }
  const size_t question = std::min(target.find('?'), target.size());
  head.path = target.substr(0, question);
  head.query = target.substr(std::min(question + 1, target.size()));
  return std::nullopt;
}

Refused parse_request_line(std::string_view line, RequestHead& head) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || first == last) {
    return bad("malformed request line");
  }
  head.method = line.substr(0, first);
  if (!is_token(head.method)) {
    return bad("malformed method");
  }
  if (const Refused refused = parse_version(line.substr(last + 1), head.is_http_1_0)) {
    return refused;
  }
  return parse_target(line.substr(first + 1, last - first - 1), head);
}

// Checks for exactly one Host (RFC 9112 3.2), and reads Expect.
Refused check_request_headers(RequestHead& head) {
  size_t hosts = 0;
  head.expects_continue = false;
  for (const HttpHeader& header : head.headers) {
    if (equal_ignoring_case(header.name, "host")) {
      ++hosts;
    } else if (equal_ignoring_case(header.name, "expect")) {
      if (!equal_ignoring_case(header.value, "100-continue")) {
        return HttpRefusal{417, "Expect other than 100-continue"};
      }
      head.expects_continue = !head.is_http_1_0;
    }
  }
  if (hosts > 1 || (hosts == 0 && !head.is_http_1_0)) {
    return bad("exactly one Host field is needed");
  }
  return std::nullopt;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Refused parse_status_line(std::string_view line, bool& is_http_1_0, int& status) {
  constexpr size_t kStatusAt = 9;  // After "HTTP/1.1 ".
  if (line.size() < kStatusAt + 3 || line[kStatusAt - 1] != ' ' ||
      !std::ranges::all_of(line.substr(kStatusAt, 3), is_digit) ||
      (line.size() > kStatusAt + 3 && line[kStatusAt + 3] != ' ') ||
      !std::ranges::all_of(line, is_field_char)) {
    return bad("malformed status line");
  }
  if (const Refused refused = parse_version(line.substr(0, kStatusAt - 1), is_http_1_0)) {
    return refused;
  }
  status =
      (line[kStatusAt] - '0') * 100 + (line[kStatusAt + 1] - '0') * 10 + line[kStatusAt + 2] - '0';
  if (status < 100) {
    return bad("malformed status line");
  }
  return std::nullopt;
}

int hex_digit(char c) {
  if (is_digit(c)) {
    return c - '0';
  }
  const char letter = lower(c);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

}  // namespace

std::string_view find_header(const std::vector<HttpHeader>& headers, std::string_view name) {
  const auto found = std::ranges::find_if(
      headers, [name](const HttpHeader& header) { return equal_ignoring_case(header.name, name); });
  return found == headers.end() ? std::string_view() : found->value;
}

std::string_view without_empty_segments(std::string_view path, std::string& buffer) {
  if (path.find("//") != std::string_view::npos) {
    buffer.clear();
    std::ranges::unique_copy(path, std::back_inserter(buffer),
                             [](char a, char b) { return a == '/' && b == '/'; });
    path = buffer;
  }
  return path.size() > 1 && path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

size_t HeadFinder::find(std::string_view bytes) {
  const size_t limit = std::min(bytes.size(), limits::kHttpHeadBytesMax);
  // A TLS hello begins with this byte. It may lack a line end, so we would wait for one in vain.
  constexpr char kTlsHandshake = 0x16;
  if (!bytes.empty() && bytes.front() == kTlsHandshake) {
    refusal_ = bad("this is not HTTP: it looks like TLS, which is not spoken here");
  }
  while (!refusal_) {
    const size_t lf = bytes.substr(0, limit).find('\n', scanned_);
    if (lf == bytes.npos) {
      scanned_ = limit;
      if (bytes.size() >= limits::kHttpHeadBytesMax) {
        refusal_ = HttpRefusal{431, "header fields too large"};
      }
      return 0;
    }
    scanned_ = lf + 1;
    if (lf == 0 || bytes[lf - 1] != '\r') {
      refusal_ = bad("a line that does not end in CR LF");
    } else if (lf >= 3 && bytes[lf - 2] == '\n') {
      return lf + 1;
    }
  }
  return 0;
}

std::optional<HttpRefusal> parse_request_head(std::string_view bytes, RequestHead& head) {
  if (const Refused refused = parse_request_line(take_line(bytes), head)) {
    return refused;
  }
  if (const Refused refused = parse_header_lines(bytes, head.headers)) {
    return refused;
  }
  Framing framing;
  if (const Refused refused = read_framing(head.headers, head.is_http_1_0, framing)) {
    return refused;
  }
  head.keep_alive = framing.keep_alive;
  head.content_length = framing.length;
  head.framing = framing.chunked      ? BodyFraming::kChunked
                 : framing.length > 0 ? BodyFraming::kLength
                                      : BodyFraming::kNone;
  return check_request_headers(head);
}

std::optional<HttpRefusal> parse_response_head(std::string_view bytes, std::string_view method,
                                               ResponseHead& head) {
  bool is_http_1_0 = false;
  if (const Refused refused = parse_status_line(take_line(bytes), is_http_1_0, head.status)) {
    return refused;
  }
  if (const Refused refused = parse_header_lines(bytes, head.headers)) {
    return refused;
  }
  Framing framing;
  if (const Refused refused = read_framing(head.headers, is_http_1_0, framing)) {
    return refused;
  }
  head.keep_alive = framing.keep_alive;
  head.content_length = framing.length;
  const bool bodiless =
      method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304;
  if (bodiless || (framing.has_length && framing.length == 0)) {
    head.framing = BodyFraming::kNone;
  } else if (framing.chunked) {
    head.framing = BodyFraming::kChunked;
  } else {
    head.framing = framing.has_length ? BodyFraming::kLength : BodyFraming::kUntilClose;
  }
  return std::nullopt;
}

size_t ChunkScanner::advance(std::string_view raw, std::string* payload) {
  size_t at = 0;
  while (at < raw.size() && state_ != State::kDone && state_ != State::kFailed) {
    if (state_ != State::kPayload) {
      state_ = step(raw[at++]);
      continue;
    }
    const auto taken = static_cast<size_t>(std::min<uint64_t>(left_, raw.size() - at));
    if (payload != nullptr) {
      payload->append(raw.substr(at, taken));
    }
    at += taken;
    left_ -= taken;
    line_bytes_ -= std::min(line_bytes_, taken);
    if (left_ == 0) {
      state_ = State::kPayloadCr;
    }
  }
  return at;
}

// Processes one byte outside the payload.
ChunkScanner::State ChunkScanner::step(char c) {
  const auto expect = [c](char wanted, State next) { return c == wanted ? next : State::kFailed; };
  switch (state_) {
    case State::kSize:
      return step_size(c);
    case State::kExtension:
      if (c == '\r') {
        return State::kSizeLf;
      }
      return is_field_char(c) && ++line_bytes_ <= kChunkLineBytesMax ? State::kExtension
                                                                     : State::kFailed;
    case State::kSizeLf:
      return c == '\n' ? after_size_line() : State::kFailed;
    case State::kPayloadCr:
      return expect('\r', State::kPayloadLf);
    case State::kPayloadLf:
      return expect('\n', State::kSize);
    case State::kTrailer:
      if (c == '\r') {
        return State::kEndLf;
      }
      [[fallthrough]];
    case State::kTrailerLine:
      if (c == '\r') {
        return State::kTrailerLf;
      }
      return is_field_char(c) && ++line_bytes_ <= kChunkLineBytesMax ? State::kTrailerLine
                                                                     : State::kFailed;
    case State::kTrailerLf:
      return expect('\n', State::kTrailer);
    case State::kEndLf:
      return expect('\n', State::kDone);
    case State::kPayload:
    case State::kDone:
    case State::kFailed:
      break;
  }
  return State::kFailed;
}

ChunkScanner::State ChunkScanner::step_size(char c) {
  if (const int digit = hex_digit(c); digit >= 0) {
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
    return ++digits_ <= kChunkDigitsMax ? State::kSize : State::kFailed;
  }
  if (digits_ == 0) {
    return State::kFailed;
  }
  return c == ';' ? State::kExtension : c == '\r' ? State::kSizeLf : State::kFailed;
}

ChunkScanner::State ChunkScanner::after_size_line() {
  digits_ = 0;
  return left_ == 0 ? State::kTrailer : State::kPayload;
}

}  // namespace pdjob::net
