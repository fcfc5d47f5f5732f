// The bytes of a control message: magic, version, type, then fields in order. Numbers are
// little-endian; strings and lists have a bounded count. A message cannot execute anything, and
// every decoder is fuzzed (tests/fuzz/wire_fuzz.cc). Format: docs/reference/wire-format.md. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"
#include "net/control/message.h"

namespace pdjob::net {

inline constexpr uint16_t kWireVersion = 24;

std::string encode(const Message& message);
// kCorrupt: not a message. kUnsupported: another version.
Result<Message> decode(std::span<const std::byte> bytes);

// What a launcher sends: a message behind the launcher's number. A process obeys no launcher with a
// lower number than the highest that it has heard.
std::string encode_order(uint64_t launcher, const Message& message);
struct Order {
  uint64_t launcher = 0;
  Message message;
};
Result<Order> decode_order(std::span<const std::byte> bytes);

}  // namespace pdjob::net
