// Reads hostile heads and chunked bodies. The result is the same however the bytes are split.
// Accepted heads have one meaning: names and values hold no CR, LF or NUL. All views stay inside
// the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "net/http/http_parser.h"

namespace {

using namespace pdjob::net;

bool inside(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_headers(const std::vector<HttpHeader>& headers, std::string_view head) {
  for (const HttpHeader& header : headers) {
    PDJOB_CHECK(inside(header.name, head) && inside(header.value, head));
    PDJOB_CHECK(!header.name.empty());
    for (const std::string_view text : {header.name, header.value}) {
      PDJOB_CHECK(
          std::ranges::none_of(text, [](char c) { return c == '\r' || c == '\n' || c == '\0'; }));
    }
  }
}

void read_heads(std::string_view bytes, size_t split) {
  HeadFinder whole;
  HeadFinder pieces;
  const size_t size = whole.find(bytes);
  size_t found = pieces.find(bytes.substr(0, split));
  if (found == 0 && !pieces.refusal()) {
    found = pieces.find(bytes);
  }
  PDJOB_CHECK(found == size && pieces.refusal().has_value() == whole.refusal().has_value());
  if (size == 0) {
    return;
  }
  const std::string_view head = bytes.substr(0, size);
  RequestHead request;
  if (!parse_request_head(head, request)) {
    check_headers(request.headers, head);
    PDJOB_CHECK(inside(request.path, head) && inside(request.query, head) && !request.path.empty());
    PDJOB_CHECK(request.framing != BodyFraming::kUntilClose);
  }
  ResponseHead response;
  if (!parse_response_head(head, "GET", response)) {
    check_headers(response.headers, head);
    PDJOB_CHECK(response.status >= 100 && response.status < 1000);
  }
}

void read_chunks(std::string_view bytes, size_t split) {
  ChunkScanner scanner;
  const size_t scanned = scanner.feed(bytes);
  ChunkDecoder decoder;
  std::string payload;
  const size_t decoded = decoder.decode(bytes.substr(0, split), payload) +
                         decoder.decode(bytes.substr(split), payload);
  PDJOB_CHECK(scanned == decoded && scanner.done() == decoder.done() &&
              scanner.failed() == decoder.failed());
  PDJOB_CHECK(payload.size() <= bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t split = data[0] % bytes.size();
  read_heads(bytes, split);
  read_chunks(bytes, split);
  return 0;
}
