// The keys of the KV links. Each endpoint has its own key pair, and a certificate in which the
// job's authority names the key's owner. Its signatures cover what both ends have said. So a
// worker's stolen keys cannot impersonate another worker of the job. Pure, except random_nonce()
// and LinkAuthority::issue().
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kvtransfer/link/tls_stream.h"

namespace pdjob::kvtransfer {

using Nonce = std::array<std::byte, 32>;
using LinkPublicKey = std::array<std::byte, 32>;
using LinkSignature = std::array<std::byte, 64>;
using LinkSecret = std::array<std::byte, 64>;  // Ed25519; it includes the public key.

// The job's authority signs that this key belongs to the engine whose id is in HELLO.
struct LinkCertificate {
  LinkPublicKey key{};
  LinkSignature signature{};
  friend bool operator==(const LinkCertificate&, const LinkCertificate&) = default;
};

// The keys that an endpoint needs on the links of its job. Value.
struct LinkKeys {
  LinkPublicKey authority{};  // The job's: it signs all certificates.
  LinkSecret secret{};        // This endpoint's own.
  LinkCertificate certificate;
  TlsKey tls{};  // The job's: the same in all its endpoints.
};
// Text form, for a ProcessSpec.
std::string encode(const LinkKeys& keys);
Result<LinkKeys> parse_link_keys(std::string_view text);

// Issues keys. Every holder of the secret can make one: the launcher, or workers that share a key
// file. Value.
class LinkAuthority {
 public:
  // An empty secret is publicly known.
  explicit LinkAuthority(std::string_view secret);

  // Makes new keys for one incarnation of a worker.
  LinkKeys issue(std::string_view engine_id) const;

 private:
  LinkPublicKey public_{};
  LinkSecret secret_{};
  TlsKey tls_{};
};

bool is_certified(const LinkCertificate& certificate, const LinkPublicKey& authority,
                  std::string_view engine_id);
LinkSignature sign(const LinkSecret& secret, std::string_view said);
bool is_signed(const LinkSignature& signature, const LinkPublicKey& key, std::string_view said);

// Random bytes from the operating system. Shells only.
Nonce random_nonce();

}  // namespace pdjob::kvtransfer
