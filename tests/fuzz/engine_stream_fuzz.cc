// Streams of a hostile engine, which dies where a byte says so, and of the one that goes on.
// However the bytes are split, the client gets the same, in a framing that it can read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "net/http/http_parser.h"
#include "router/streams/engine_stream.h"

namespace {

using pdjob::router::EngineRequest;
using pdjob::router::EngineStream;

constexpr std::string_view kDies = "\x01";  // Between two engines' bodies.

std::string passed(const std::string& request, bool chat, std::string_view bytes, size_t split) {
  EngineStream stream(EngineRequest::read(chat ? "/v1/chat/completions" : "/v1/completions",
                                          request, {.context_max = 64}));
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t end = std::min(bytes.find(kDies, at), bytes.size());
    const std::string_view body = bytes.substr(at, end - at);
    const size_t cut = body.empty() ? 0 : split % body.size();
    stream.take(body.substr(0, cut), out);
    stream.take(body.substr(cut), out);
    if (end == bytes.size() || stream.complete() || !stream.resumable()) {
      break;
    }
    const auto next = stream.resumption();
    PDJOB_CHECK(!next.body.empty() && next.body.front() == '{', next.body);
    stream.change_worker();
    at = end + kDies.size();
  }
  stream.finish(out);
  return out;
}

std::string payload_of(std::string_view raw) {
  pdjob::net::ChunkDecoder decoder;
  std::string payload;
  PDJOB_CHECK(decoder.decode(raw, payload) == raw.size() && !decoder.failed());
  return payload;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t split = size == 0 ? 0 : data[size / 2];
  for (const bool chat : {false, true}) {
    for (const std::string request :
         {R"({"prompt":"a","messages":[],"max_tokens":9,"stream_options":{"include_usage":true}})",
          R"({"prompt":"a","messages":[],"temperature":0,"stop":"x","return_token_ids":true})"}) {
      const std::string whole = payload_of(passed(request, chat, bytes, 0));
      PDJOB_CHECK(whole == payload_of(passed(request, chat, bytes, split)), split);
    }
  }
  return 0;
}
