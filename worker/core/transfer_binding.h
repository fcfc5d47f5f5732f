// Binds a transfer to its prompt and its tenant. A worker gets the rows only if it asks for the
// same prompt as the same tenant. On KV links, the lower half of the id stays the transfer's name.
// The upper half becomes a proof: a hash of the whole id, the prompt and the tenant. A name with
// another proof is refused at once (kvtransfer/kv_endpoint.h). Pure.
#pragma once

#include <span>
#include <string_view>

#include "common/generation.h"
#include "common/id.h"

namespace pdjob::worker {

TransferId bound_transfer(TransferId transfer, std::span<const Token> prompt,
                          std::string_view tenant);

}  // namespace pdjob::worker
