#include "worker/blocks/block_names.h"

#include <cstring>

#include "common/crypto/blake2b.h"

namespace pdjob::worker {
namespace {

BlockName name_of(const Digest& digest) {
  BlockName name;
  static_assert(sizeof name <= sizeof digest);
  std::memcpy(&name.high, digest.data(), sizeof name.high);
  std::memcpy(&name.low, digest.data() + sizeof name.high, sizeof name.low);
  return name;
}

}  // namespace

kvtransfer::BlockOwner owner_of(std::string_view tenant) {
  kvtransfer::BlockOwner owner;
  if (!tenant.empty()) {
    const Digest digest = Blake2b("pdjob owner 1").add(tenant).finish();
    std::memcpy(&owner.value, digest.data(), sizeof owner.value);
  }
  return owner;
}

BlockName beginning(std::string_view meaning, std::string_view tenant) {
  return name_of(Blake2b("pdjob blocks 1")
                     .add(uint64_t{kBlockTokens})
                     .add(uint64_t{meaning.size()})
                     .add(meaning)
                     .add(tenant)
                     .finish());
}

// The meaning includes the library, so tokens have the same bytes wherever a name is made.
BlockName block_behind(const BlockName& before, std::span<const Token> tokens) {
  return name_of(Blake2b("pdjob block 1")
                     .add(before.high)
                     .add(before.low)
                     .add(std::as_bytes(tokens))
                     .finish());
}

}  // namespace pdjob::worker
