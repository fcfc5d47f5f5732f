#include "worker/core/transfer_binding.h"

#include <cstring>

#include "common/crypto/blake2b.h"
#include "worker/core/generation.h"

namespace pdjob::worker {

TransferId bound_transfer(TransferId transfer, std::span<const Token> prompt,
                          std::string_view tenant) {
  // The fingerprint ensures that both ends run the same build of the same library, so tokens have
  // the same bytes.
  const Digest digest = Blake2b("pdjob transfer 1")
                            .add(transfer.high)
                            .add(transfer.low)
                            .add(uint64_t{prompt.size()})
                            .add(std::as_bytes(prompt))
                            .add(tenant)
                            .finish();
  TransferId bound{.low = transfer.low};
  static_assert(sizeof bound.high <= sizeof digest);
  std::memcpy(&bound.high, digest.data(), sizeof bound.high);
  return bound;
}

GenerationRequest bound(GenerationRequest request) {
  if (request.kv != KvMode::kLocal) {
    request.link_transfer = bound_transfer(request.transfer, request.prompt, request.tenant);
  }
  return request;
}

}  // namespace pdjob::worker
