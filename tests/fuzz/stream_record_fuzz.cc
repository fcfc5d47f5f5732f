// Records hostile streams. The result is the same however the bytes are split. Only the last chunk
// may be added to it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "router/streams/pdjob_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pdjob::router::PdjobStream;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  PdjobStream whole;
  std::string passed;
  whole.take(bytes, passed);
  const size_t split = size == 0 ? 0 : data[size / 2] % size;
  PdjobStream pieces;
  std::string passed_in_pieces;
  pieces.take(bytes.substr(0, split), passed_in_pieces);
  pieces.take(bytes.substr(split), passed_in_pieces);
  PDJOB_CHECK(passed == passed_in_pieces, split);
  PDJOB_CHECK(whole.resumption().tokens == pieces.resumption().tokens, split);
  PDJOB_CHECK(whole.resumption().weights == pieces.resumption().weights, split);
  PDJOB_CHECK(whole.resumable() == pieces.resumable() && whole.complete() == pieces.complete());
  PDJOB_CHECK(passed.size() <= size + 5, "nothing but the last chunk is made here");
  return 0;
}
