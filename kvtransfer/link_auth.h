// Proof of the job's token on a KV link: HMAC-SHA-512-256 over what both ends said, so the token
// never crosses the wire. The only door to libsodium. Pure, but for random_nonce().
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "kvtransfer/link_message.h"
#include "kvtransfer/tls_stream.h"

namespace pdjob::kvtransfer {

using LinkKey = std::array<std::byte, 32>;

// An empty token is a key as well: one that everybody knows.
LinkKey make_key(std::string_view token);
// The key of encrypted links: of the same token, and saying nothing of the key above.
TlsKey make_tls_key(std::string_view token);
LinkProof make_proof(const LinkKey& key, std::string_view said);
// In constant time.
bool proof_matches(const LinkProof& proof, const LinkKey& key, std::string_view said);

// From the operating system. Shells only.
Nonce random_nonce();

}  // namespace pdjob::kvtransfer
