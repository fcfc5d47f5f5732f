#include "kvtransfer/link/link_keys.h"

#include <span>

#include <sodium.h>

#include "common/check.h"
#include "common/crypto/blake2b.h"

namespace pdjob::kvtransfer {
namespace {

static_assert(std::tuple_size_v<LinkPublicKey> == crypto_sign_PUBLICKEYBYTES);
static_assert(std::tuple_size_v<LinkSecret> == crypto_sign_SECRETKEYBYTES);
static_assert(std::tuple_size_v<LinkSignature> == crypto_sign_BYTES);
static_assert(sizeof(Digest) == crypto_sign_SEEDBYTES);

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string certified_text(const LinkPublicKey& key, std::string_view engine_id) {
  return "pdjob kv certificate 1" +
         std::string(reinterpret_cast<const char*>(key.data()), key.size()) +
         std::string(engine_id);
}

// The parts of LinkKeys, in the order of its text.
template <class Keys, class Each>
void each_part(Keys& keys, const Each& each) {
  each(std::span(keys.authority));
  each(std::span(keys.secret));
  each(std::span(keys.certificate.key));
  each(std::span(keys.certificate.signature));
  each(std::span(keys.tls));
}

}  // namespace

std::string encode(const LinkKeys& keys) {
  std::string text;
  each_part(keys, [&text](const auto& part) {
    std::string hex(part.size() * 2 + 1, '\0');
    sodium_bin2hex(hex.data(), hex.size(), raw(part.data()), part.size());
    hex.pop_back();
    text += hex;
  });
  return text;
}

Result<LinkKeys> parse_link_keys(std::string_view text) {
  LinkKeys keys;
  bool good = true;
  each_part(keys, [&](const auto& part) {
    size_t bytes = 0;
    const std::string_view hex = text.substr(0, part.size() * 2);
    text.remove_prefix(hex.size());
    good = good &&
           sodium_hex2bin(raw(part.data()), part.size(), hex.data(), hex.size(), nullptr, &bytes,
                          nullptr) == 0 &&
           bytes == part.size();
  });
  if (!good || !text.empty()) {
    return Error{ErrorCode::kInvalidArgument, "the keys of KV links cannot be read"};
  }
  return keys;
}

LinkAuthority::LinkAuthority(std::string_view secret) {
  PDJOB_CHECK(sodium_init() >= 0);
  const Digest seed = Blake2b("pdjob kv sign 1").add(secret).finish();
  crypto_sign_seed_keypair(raw(public_.data()), raw(secret_.data()), raw(seed.data()));
  tls_ = Blake2b("pdjob kv tls 2").add(secret).finish();
}

LinkKeys LinkAuthority::issue(std::string_view engine_id) const {
  LinkKeys keys{.authority = public_, .tls = tls_};
  crypto_sign_keypair(raw(keys.certificate.key.data()), raw(keys.secret.data()));
  keys.certificate.signature = sign(secret_, certified_text(keys.certificate.key, engine_id));
  return keys;
}

bool is_certified(const LinkCertificate& certificate, const LinkPublicKey& authority,
                  std::string_view engine_id) {
  return is_signed(certificate.signature, authority, certified_text(certificate.key, engine_id));
}

LinkSignature sign(const LinkSecret& secret, std::string_view said) {
  LinkSignature signature;
  crypto_sign_detached(raw(signature.data()), nullptr, raw(said), said.size(), raw(secret.data()));
  return signature;
}

bool is_signed(const LinkSignature& signature, const LinkPublicKey& key, std::string_view said) {
  return crypto_sign_verify_detached(raw(signature.data()), raw(said), said.size(),
                                     raw(key.data())) == 0;
}

Nonce random_nonce() {
  PDJOB_CHECK(sodium_init() >= 0);
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace pdjob::kvtransfer
