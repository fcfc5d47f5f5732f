// HTTP/1.1 heads and chunked bodies, parsed strictly. Two parsers could read some texts
// differently: two lengths, a folded line, a bare LF, a space before the colon. All these are
// refused, so that no request can be smuggled past the router. Views point into the parsed bytes.
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
// The value of the first header of that name, ignoring case; empty if absent. Pure.
std::string_view find_header(const std::vector<HttpHeader>& headers, std::string_view name);
// Ignores case in ASCII only. Pure.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [lower](char x, char y) {
           return lower(x) == lower(y);
         });
}

// The path without empty segments: without a slash at its end, and with one where several follow
// each other. Some clients join their paths to a base URL that ends in a slash. "/" stays. The
// result is `path` itself, or in `buffer`. Pure.
std::string_view without_empty_segments(std::string_view path, std::string& buffer);

enum class BodyFraming { kNone, kLength, kChunked, kUntilClose };

// Status and reason of a refused message. Value.
struct HttpRefusal {
  int status = 400;
  const char* reason = "";
  uint32_t retry_after_seconds = 0;  // 0: no Retry-After.
  const char* accept_encoding = "";  // The codings that would be read; empty: no Accept-Encoding.
};

// A parsed head. The next one reuses its memory. Value.
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
  bool keep_alive = true;  // As the peer says; an until-close body also ends it.
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
};

// Finds the end of a head in bytes that arrive in pieces. It scans each byte once. Value.
class HeadFinder {
 public:
  // `bytes` start at the head's first byte and only grow from call to call. Returns the length of
  // the head with its empty line, or 0 if more bytes are needed. Refuses a bare LF and a head over
  // limits::kHttpHeadBytesMax.
  size_t find(std::string_view bytes);
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }
  void reset() { *this = {}; }

 private:
  size_t scanned_ = 0;
  std::optional<HttpRefusal> refusal_;
};

// `bytes` must be exactly one head, as found by HeadFinder. Pure.
std::optional<HttpRefusal> parse_request_head(std::string_view bytes, RequestHead& head);
// `method` is the request's: a reply to HEAD has no body.
std::optional<HttpRefusal> parse_response_head(std::string_view bytes, std::string_view method,
                                               ResponseHead& head);

// Follows a chunked body, split at any place, to its end, trailers included. Value.
class ChunkScanner {
 public:
  // Returns how many bytes of `raw` belong to the body: all, unless it ends or fails inside `raw`.
  size_t feed(std::string_view raw) { return advance(raw, nullptr); }
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }

 protected:
  size_t advance(std::string_view raw, std::string* payload);

 private:
  enum class State {
    kSize,       // Hexadecimal digits.
    kExtension,  // After ';', until CR.
    kSizeLf,     // LF of the size line.
    kPayload,
    kPayloadCr,
    kPayloadLf,
    kTrailer,      // At the start of a line after the last chunk.
    kTrailerLine,  // Inside a trailer line.
    kTrailerLf,    // LF of a trailer line.
    kEndLf,        // LF of the empty line.
    kDone,
    kFailed,
  };
  State step(char c);
  State step_size(char c);
  State after_size_line();

  State state_ = State::kSize;
  uint64_t left_ = 0;  // Bytes of the chunk still to come; while its size is read, the size so far.
  size_t digits_ = 0;
  // Bytes of extensions and trailers, less those of payload. Bounded, so that no body consists of
  // them.
  size_t line_bytes_ = 0;
};

// The same, and also returns the payload. Value.
class ChunkDecoder : public ChunkScanner {
 public:
  // Appends the payload in `raw`. Returns the same as feed().
  size_t decode(std::string_view raw, std::string& payload) { return advance(raw, &payload); }
};

}  // namespace pdjob::net
