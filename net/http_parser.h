// HTTP/1.1 heads and chunked bodies, read strictly: what two parsers could read differently (two
// lengths, a folded line, a bare LF, a space before the colon) is refused, so that no request can
// be smuggled past the router. Views point into the parsed bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::net {

struct HttpHeader {
  std::string_view name;
  std::string_view value;
};
// The value of the first of that name, compared without case; empty if absent. Pure.
std::string_view find_header(const std::vector<HttpHeader>& headers, std::string_view name);
// Without case, ASCII only. Pure.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [lower](char x, char y) {
           return lower(x) == lower(y);
         });
}

enum class BodyFraming { kNone, kLength, kChunked, kUntilClose };

// Why a message is refused, and as what. Value.
struct HttpRefusal {
  int status = 400;
  const char* reason = "";
  uint32_t retry_after_seconds = 0;  // 0: not said.
};

// A parsed head, its memory reused by the next one. Value.
struct RequestHead {
  std::string_view method;
  std::string_view path;
  std::string_view query;
  std::vector<HttpHeader> headers;
  bool is_http_1_0 = false;
  bool keep_alive = true;
  bool expects_continue = false;
  BodyFraming framing = BodyFraming::kNone;  // kNone, kLength or kChunked.
  uint64_t content_length = 0;
};
struct ResponseHead {
  int status = 0;
  std::vector<HttpHeader> headers;
  bool keep_alive = true;  // As far as the peer is concerned; an until-close body ends it too.
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
};

// Finds where a head ends in bytes that arrive piece by piece; each byte is looked at once. Value.
class HeadFinder {
 public:
  // `bytes` start at the head's first byte and only grow from call to call. The length of the head
  // with its empty line, or 0: more is needed. A bare LF and a head over limits::kHttpHeadBytesMax
  // are refused.
  size_t find(std::string_view bytes);
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }
  void reset() { *this = {}; }

 private:
  size_t scanned_ = 0;
  std::optional<HttpRefusal> refusal_;
};

// `bytes` are exactly one head, as found by HeadFinder. Pure.
std::optional<HttpRefusal> parse_request_head(std::string_view bytes, RequestHead& head);
// `method` is that of the request: a reply to HEAD has no body.
std::optional<HttpRefusal> parse_response_head(std::string_view bytes, std::string_view method,
                                               ResponseHead& head);

// Follows a chunked body through any split of its bytes to its end, trailers included. Value.
class ChunkScanner {
 public:
  // How many of `raw` belong to the body: all, unless it is done or failed within.
  size_t feed(std::string_view raw) { return advance(raw, nullptr); }
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }

 protected:
  size_t advance(std::string_view raw, std::string* payload);

 private:
  enum class State {
    kSize,       // Hexadecimal digits.
    kExtension,  // After ';', to CR.
    kSizeLf,     // LF of the size line.
    kPayload,
    kPayloadCr,
    kPayloadLf,
    kTrailer,      // At the start of a line after the last chunk.
    kTrailerLine,  // Inside one.
    kTrailerLf,    // LF of one.
    kEndLf,        // LF of the empty line.
    kDone,
    kFailed,
  };
  State step(char c);
  State step_size(char c);
  State after_size_line();

  State state_ = State::kSize;
  uint64_t left_ = 0;  // Of the chunk: while reading its size, the size so far.
  size_t digits_ = 0;
  size_t line_bytes_ = 0;  // Of extensions and trailers, less those of payload: nobody can make a
                           // body of them.
};

// The same, handing out the payload. Value.
class ChunkDecoder : public ChunkScanner {
 public:
  // Appends what is payload in `raw`; the result is feed()'s.
  size_t decode(std::string_view raw, std::string& payload) { return advance(raw, &payload); }
};

}  // namespace pdjob::net
