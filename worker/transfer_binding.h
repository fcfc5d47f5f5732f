// Binds a transfer to its prompt and its tenant: on KV links it goes by a name made of all three,
// so rows reach only who has asked for the same prompt as the same tenant. Who knows or guesses a
// transfer's id alone asks for a transfer that nobody ever offers. Pure.
#pragma once

#include <span>
#include <string_view>

#include "common/generation.h"
#include "common/id.h"

namespace pdjob::worker {

TransferId bound_transfer(TransferId transfer, std::span<const Token> prompt,
                          std::string_view tenant);

}  // namespace pdjob::worker
