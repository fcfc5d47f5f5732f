// The bytes of a message between launcher and agent: magic, version, type, session, number, then
// fields in order (net/control/wire_fields.h). Fuzzed (tests/fuzz/agent_fuzz.cc). Pure.
#pragma once

#include <span>
#include <string>

#include "common/result.h"
#include "launcher/agents/agent_message.h"

namespace pdjob::launcher {

inline constexpr uint16_t kAgentWireVersion = 9;

std::string encode(const AgentFrame& frame);
// kCorrupt: not a message. kUnsupported: another version.
Result<AgentFrame> decode_agent_frame(std::span<const std::byte> bytes);

}  // namespace pdjob::launcher
