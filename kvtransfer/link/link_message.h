// The messages of a link and their bytes: a fixed header, then fields in order, little-endian,
// every count bounded. Row bytes and tails follow their message on the socket; they are not part of
// it. Format: docs/reference/kv-link.md. Values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/link/link_keys.h"

namespace pdjob::kvtransfer {

// Named fields that must be equal on both ends of a link ("model_digest", "kv_type", ...). A
// mismatch refuses the link and names the field. None at all: a store, whose rows have names that
// cover them.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

inline constexpr uint16_t kLinkVersion = 10;

// --- opening a link; I: the initiator (fetches), A: the acceptor (offers)
//
// HELLO. I: who I am and which engine I want. In another version's HELLO only `version` is read.
struct Hello {
  uint16_t version = kLinkVersion;
  TransportKind transport = TransportKind::kTcp;
  uint64_t epoch = 0;  // Grows with every link that this initiator opens. A lower one is stale.
  std::string engine_id;
  std::string peer_engine_id;
  Nonce nonce{};
  // Number of this link between the two endpoints. Each stream has its own epochs.
  uint8_t stream = 0;
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct Challenge {  // A: proves its identity and asks the initiator to do the same.
  Nonce nonce{};
  LinkCertificate certificate;
  LinkSignature proof{};
  friend bool operator==(const Challenge&, const Challenge&) = default;
};
struct Prove {  // I: its proof, and the fields that must be equal on both ends.
  LinkCertificate certificate;
  LinkSignature proof{};
  Fingerprint fingerprint;
  friend bool operator==(const Prove&, const Prove&) = default;
};
struct Welcome {  // A: the link is ready.
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct Refuse {  // A: the link is refused, then closed.
  Error error;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};

// --- receiver to sender
struct GrantedWindow {
  uint32_t row_bytes = 0;
  uint64_t shared_offset = 0;
  friend bool operator==(const GrantedWindow&, const GrantedWindow&) = default;
};
// "Push transfer `id` into these windows." With shm and cuda_ipc, the memory's descriptor comes
// along.
struct Grant {
  TransferId id;
  uint32_t rows = 0;
  uint64_t shared_bytes = 0;
  uint64_t shared_id = 0;  // GPU memory: the receiver's name for it.
  std::vector<GrantedWindow> windows;
  friend bool operator==(const Grant&, const Grant&) = default;
};
struct Committed {  // "All rows are in place and correct."
  TransferId id;
  friend bool operator==(const Committed&, const Committed&) = default;
};
struct Cancel {  // "Stop writing." Always answered by Cancelled.
  TransferId id;
  Error error;
  friend bool operator==(const Cancel&, const Cancel&) = default;
};
// "I still want all transfers that I granted or wait for." Always answered by Renewed.
struct Renew {
  friend bool operator==(const Renew&, const Renew&) = default;
};

// --- sender to receiver
//
// ROWS. tcp: `payload_bytes` of rows follow. cuda_ipc: the rows are in place. shm: LANDED follows.
// nccl: slabs follow.
struct Rows {
  TransferId id;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t payload_bytes = 0;
  friend bool operator==(const Rows&, const Rows&) = default;
};
struct Commit {  // "All rows are sent." `tail_bytes` of tail follow.
  TransferId id;
  uint32_t rows = 0;
  uint64_t bytes = 0;
  uint64_t digest = 0;
  // When the last row was ready, on CLOCK_MONOTONIC of the sender's machine.
  uint64_t ready_at_ns = 0;
  uint32_t tail_bytes = 0;
  friend bool operator==(const Commit&, const Commit&) = default;
};
struct Cancelled {  // "I have stopped writing."
  TransferId id;
  friend bool operator==(const Cancelled&, const Cancelled&) = default;
};
struct Abort {  // "I failed, and have stopped writing."
  TransferId id;
  Error error;
  friend bool operator==(const Abort&, const Abort&) = default;
};
struct Renewed {
  friend bool operator==(const Renewed&, const Renewed&) = default;
};

// --- the communicator of an nccl link (nccl_link.h); an epoch is one of its incarnations
using NcclLinkId = std::array<std::byte, 128>;
struct NcclOffer {  // Receiver: "join the communicator of this unique id as rank 1."
  uint32_t epoch = 0;
  NcclLinkId id{};
  friend bool operator==(const NcclOffer&, const NcclOffer&) = default;
};
struct NcclPosted {  // Receiver: "the receive of this slab is under way: send it."
  uint32_t epoch = 0;
  uint64_t number = 0;
  friend bool operator==(const NcclPosted&, const NcclPosted&) = default;
};
struct NcclSlab {  // Sender: "the next bytes of the rows announced for `transfer` lie in a slab."
  uint32_t epoch = 0;
  uint64_t number = 0;  // Number of the slab, from 0 in each epoch.
  TransferId transfer;
  uint32_t bytes = 0;
  friend bool operator==(const NcclSlab&, const NcclSlab&) = default;
};
struct NcclLeave {  // Receiver: "let us close this communicator." Sender: "I have sent my last
                    // slab."
  uint32_t epoch = 0;
  friend bool operator==(const NcclLeave&, const NcclLeave&) = default;
};

// --- receiver to sender, since version 3
struct Wait {  // "I will fetch this transfer when I have rows for it: keep it while I renew."
  TransferId id;
  uint32_t at_most_ms = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// --- sender to receiver, since version 6
//
// LANDED. shm: "the first `bytes` of the range last announced, in canonical order, are in place."
struct Landed {
  TransferId id;
  uint64_t bytes = 0;
  friend bool operator==(const Landed&, const Landed&) = default;
};

// --- receiver to sender, since version 9
//
// Whose blocks they are: a digest of the tenant's name (worker/blocks/block_names.h). 0: a job
// without tenants.
using BlockOwner = StrongId<struct BlockOwnerTag, uint64_t>;
// A block of KV rows by its name, and the transfer that moves its rows.
struct NamedBlock {
  BlockName name;
  TransferId transfer;
  friend bool operator==(const NamedBlock&, const NamedBlock&) = default;
};
// BLOCKS. kWanted: "I fetch these from you." The peer answers each transfer by an offer, or refuses
// it. kHeld: "Fetch of these what you lack, from `holder`." The blocks of one beginning, in order.
struct BlockNews {
  enum class Kind : uint8_t { kWanted = 1, kHeld = 2 };
  Kind kind = Kind::kWanted;
  BlockOwner owner;                 // Of kHeld, since version 10.
  EndpointAddress holder;           // Of kHeld: its engine id is the sender's own.
  uint32_t rows = 0;                // Of each block.
  std::vector<uint32_t> row_bytes;  // By window.
  BlockName before;                 // The block in front of the first one; zero: it begins.
  std::vector<NamedBlock> blocks;   // At most limits::kBlocksTold.
  friend bool operator==(const BlockNews&, const BlockNews&) = default;
};

// The order is the wire's type number, from 1.
using LinkMessage = std::variant<Hello, Challenge, Prove, Welcome, Refuse, Grant, Committed, Cancel,
                                 Renew, Rows, Commit, Cancelled, Abort, Renewed, NcclOffer,
                                 NcclPosted, NcclSlab, NcclLeave, Wait, Landed, BlockNews>;
const char* name_of(const LinkMessage& message);

// Who may send a message once the link is open, and who takes it.
struct MessageRole {
  bool from_receiver = false;
  bool from_sender = false;
  bool between_transports = false;  // It goes to Transport::on_message().
};
MessageRole role_of(const LinkMessage& message);

inline constexpr size_t kFrameHeaderBytes = 8;

struct FrameHeader {
  uint8_t type = 0;
  uint32_t body_bytes = 0;
};

// Returns header and body.
std::string encode(const LinkMessage& message);
// kCorrupt: not a message header, or the body is too long.
Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes);
// kCorrupt: not a message of that type.
Result<LinkMessage> decode_body(uint8_t type, std::span<const std::byte> body);

// The bytes of a fingerprint as a link's proof covers them.
std::string encode(const Fingerprint& fingerprint);

}  // namespace pdjob::kvtransfer
