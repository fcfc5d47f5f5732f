#include "common/crypto/sha256.h"

#include <array>

#include <sodium.h>

#include "common/hex.h"

namespace pdjob {

std::string sha256_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size());
  return hex_of(std::as_bytes(std::span(digest)));
}

}  // namespace pdjob
