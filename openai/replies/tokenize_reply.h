// The reply to POST /tokenize, in vLLM's format. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::openai {

// kCorrupt: it has no tokens.
Result<std::vector<uint32_t>> parse_tokenize_reply(const std::string& body);

}  // namespace pdjob::openai
