// The keys of the KV links. Each endpoint has a key pair of its own, and a certificate in which its
// job's authority says whose it is; it signs all that both ends have said. So a worker's stolen
// keys cannot speak for another worker of the job. Pure, but for
// random_nonce() and LinkAuthority::issue().
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kvtransfer/tls_stream.h"

namespace pdjob::kvtransfer {

using Nonce = std::array<std::byte, 32>;
using LinkPublicKey = std::array<std::byte, 32>;
using LinkSignature = std::array<std::byte, 64>;
using LinkSecret = std::array<std::byte, 64>;  // Ed25519, the public key in it.

// "The job's authority: this is the key of that engine", whose id the HELLO names.
struct LinkCertificate {
  LinkPublicKey key{};
  LinkSignature signature{};
  friend bool operator==(const LinkCertificate&, const LinkCertificate&) = default;
};

// The keys that an endpoint needs on the links of its job. Value.
struct LinkKeys {
  LinkPublicKey authority{};  // Of the job: it signs the certificates of all.
  LinkSecret secret{};        // This endpoint's own.
  LinkCertificate certificate;
  TlsKey tls{};  // Of the job: the same in all of its endpoints.
};
// For a ProcessSpec.
std::string encode(const LinkKeys& keys);
Result<LinkKeys> parse_link_keys(std::string_view text);

// Issues keys to all who know the secret: the launcher, or those who share a key file. Value.
class LinkAuthority {
 public:
  // An empty secret is one that everybody knows.
  explicit LinkAuthority(std::string_view secret);

  // New ones, for one incarnation of a worker.
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

// From the operating system. Shells only.
Nonce random_nonce();

}  // namespace pdjob::kvtransfer
