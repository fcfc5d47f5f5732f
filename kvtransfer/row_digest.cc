#include "kvtransfer/row_digest.h"

#include <xxhash.h>
#ifdef PDJOB_XXH_DISPATCH
#include <xxh_x86dispatch.h>  // After xxhash.h: it replaces update by the one for this CPU.
#endif

#include "common/check.h"

namespace pdjob::kvtransfer {

void RowDigest::Free::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

RowDigest::RowDigest() : state_(XXH3_createState()) {
  PDJOB_CHECK(state_ != nullptr);
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void RowDigest::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

uint64_t RowDigest::value() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
}

void hash_and_advance(RowDigest& digest, RowCursor& cursor, size_t bytes) {
  while (bytes > 0) {
    const std::span<std::byte> piece = cursor.next(bytes);
    digest.update(piece);
    cursor.advance(piece.size());
    bytes -= piece.size();
  }
}

}  // namespace pdjob::kvtransfer
