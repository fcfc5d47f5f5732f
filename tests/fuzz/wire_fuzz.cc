// Decodes hostile control messages. The form is canonical: a decoded message encodes to the same
// bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "common/check.h"
#include "net/control/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = pdjob::net::decode(std::as_bytes(std::span(data, size)));
  if (message) {
    const std::string bytes = pdjob::net::encode(*message);
    PDJOB_CHECK(bytes.size() == size && std::memcmp(bytes.data(), data, size) == 0);
  }
  return 0;
}
