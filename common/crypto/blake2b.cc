#include "common/crypto/blake2b.h"

#include <algorithm>

#include <sodium.h>

#include "common/check.h"

namespace pdjob {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

struct Blake2b::State {
  crypto_generichash_blake2b_state hash;
};

Blake2b::Blake2b(std::string_view purpose, std::span<const std::byte> key)
    : state_(std::make_unique<State>()) {
  std::array<unsigned char, crypto_generichash_blake2b_PERSONALBYTES> personal{};
  PDJOB_CHECK(purpose.size() <= personal.size(), purpose);
  std::ranges::copy(purpose, personal.begin());
  PDJOB_CHECK(crypto_generichash_blake2b_init_salt_personal(&state_->hash, raw(key), key.size(),
                                                            sizeof(Digest), nullptr,
                                                            personal.data()) == 0);
}

Blake2b::~Blake2b() { sodium_memzero(state_.get(), sizeof *state_); }

Blake2b& Blake2b::add(std::span<const std::byte> bytes) {
  crypto_generichash_blake2b_update(&state_->hash, raw(bytes), bytes.size());
  return *this;
}

Blake2b& Blake2b::add(uint64_t number) {
  std::array<std::byte, sizeof number> bytes;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(number);
    number >>= 8;
  }
  return add(bytes);
}

Digest Blake2b::finish() {
  Digest digest;
  crypto_generichash_blake2b_final(&state_->hash, reinterpret_cast<unsigned char*>(digest.data()),
                                   digest.size());
  return digest;
}

bool equal_digests(const Digest& left, const Digest& right) {
  return sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace pdjob
