// Binds a transfer to its prompt and its tenant: rows reach only who has asked for the same prompt
// as the same tenant. On KV links a transfer keeps the lower half of its id, its name. The upper
// half becomes a proof, a hash of the whole id, the prompt and the tenant; a name with another
// proof is refused at once (kvtransfer/kv_endpoint.h). Pure.
#pragma once

#include <span>
#include <string_view>

#include "common/generation.h"
#include "common/id.h"

namespace pdjob::worker {

TransferId bound_transfer(TransferId transfer, std::span<const Token> prompt,
                          std::string_view tenant);

}  // namespace pdjob::worker
