#include "kvtransfer/link_auth.h"

#include <sodium.h>

#include "common/check.h"

namespace pdjob::kvtransfer {
namespace {

static_assert(std::tuple_size_v<LinkKey> == crypto_auth_KEYBYTES);
static_assert(std::tuple_size_v<LinkProof> == crypto_auth_BYTES);

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

LinkKey make_key(std::string_view token) {
  LinkKey key;
  crypto_generichash(raw(key.data()), key.size(), raw(token), token.size(), nullptr, 0);
  return key;
}

TlsKey make_tls_key(std::string_view token) {
  constexpr unsigned char kPurpose[crypto_generichash_blake2b_PERSONALBYTES] = "pdjob kv tls 1";
  TlsKey key;
  crypto_generichash_blake2b_salt_personal(raw(key.data()), key.size(), raw(token), token.size(),
                                           nullptr, 0, nullptr, kPurpose);
  return key;
}

LinkProof make_proof(const LinkKey& key, std::string_view said) {
  LinkProof proof;
  crypto_auth(raw(proof.data()), raw(said), said.size(), raw(key.data()));
  return proof;
}

bool proof_matches(const LinkProof& proof, const LinkKey& key, std::string_view said) {
  return crypto_auth_verify(raw(proof.data()), raw(said), said.size(), raw(key.data())) == 0;
}

Nonce random_nonce() {
  PDJOB_CHECK(sodium_init() >= 0);
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace pdjob::kvtransfer
