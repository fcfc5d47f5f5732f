// The reply to POST /tokenize, as vLLM has it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::net {

// kCorrupt: it names no tokens.
Result<std::vector<uint32_t>> parse_tokenize_reply(const std::string& body);

}  // namespace pdjob::net
