// The bytes of a control message: magic, version, type, then fields in order. Numbers are
// little-endian; strings and lists have a bounded count. A message cannot execute anything, and
// every decoder is fuzzed (tests/fuzz/wire_fuzz.cc). Format: docs/reference/wire-format.md. Pure.
#pragma once

#include <span>
#include <string>

#include "common/result.h"
#include "net/control/message.h"

namespace pdjob::net {

inline constexpr uint16_t kWireVersion = 9;

std::string encode(const Message& message);
// kCorrupt: not a message. kUnsupported: another version.
Result<Message> decode(std::span<const std::byte> bytes);

}  // namespace pdjob::net
