#include "kvtransfer/link/link_message.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "common/limits.h"
#include "net/control/wire_fields.h"

namespace pdjob::kvtransfer {
namespace {

constexpr uint32_t kMagic = 0x564b4450;  // "PDKV" read as text, in HELLO only.
constexpr size_t kTextBytesMax = 4 * limits::kKiB;
constexpr size_t kFieldsMax = 64;  // Most fields of a fingerprint.

using net::WireReader;
using net::WireWriter;

// `Message` is const when writing.
template <class Message, class Expected>
concept Is = std::is_same_v<std::remove_const_t<Message>, Expected>;

template <class Wire, class Text>
void text(Wire& wire, Text& value) {
  wire.template text<uint16_t>(value, kTextBytesMax);
}

template <class Wire, Is<TransferId> Id>
void fields(Wire& wire, Id& id) {
  wire.value(id.high);
  wire.value(id.low);
}
void fields(WireWriter& wire, const Error& error) {
  wire.word(error.code, ErrorCode{}, ErrorCode::kInternal);
  // Ours is cut, not refused.
  const auto kept = std::string_view(error.message).substr(0, kTextBytesMax);
  text(wire, kept);
}
void fields(WireReader& wire, Error& error) {
  wire.word(error.code, ErrorCode{}, ErrorCode::kInternal);
  text(wire, error.message);
}
template <class Wire, class List>
void fingerprint_fields(Wire& wire, List& fingerprint) {
  wire.list(fingerprint, kFieldsMax, [](Wire& each, auto& field) {
    text(each, field.first);
    text(each, field.second);
  });
}

template <class Wire, class Certificate>
void certificate_fields(Wire& wire, Certificate& certificate) {
  wire.raw(certificate.key);
  wire.raw(certificate.signature);
}

template <class Wire, Is<Hello> Message>
void fields(Wire& wire, Message& hello) {
  uint32_t magic = kMagic;
  wire.value(magic);
  wire.require(magic == kMagic);
  wire.value(hello.version);
  if constexpr (std::is_same_v<Wire, WireReader>) {
    if (hello.version != kLinkVersion) {
      wire.skip_rest();  // The version is enough to refuse the link; the rest depends on it.
      return;
    }
  }
  wire.word(hello.transport, TransportKind::kShm, TransportKind::kCudaIpc);
  wire.value(hello.epoch);
  text(wire, hello.engine_id);
  text(wire, hello.peer_engine_id);
  wire.raw(hello.nonce);
  wire.value(hello.stream);
  wire.require(hello.stream < limits::kLinkStreamsMax);
}
template <class Wire, Is<Challenge> Message>
void fields(Wire& wire, Message& challenge) {
  wire.raw(challenge.nonce);
  certificate_fields(wire, challenge.certificate);
  wire.raw(challenge.proof);
}
template <class Wire, Is<Prove> Message>
void fields(Wire& wire, Message& prove) {
  certificate_fields(wire, prove.certificate);
  wire.raw(prove.proof);
  fingerprint_fields(wire, prove.fingerprint);
}
template <class Wire, Is<Grant> Message>
void fields(Wire& wire, Message& grant) {
  fields(wire, grant.id);
  wire.value(grant.rows);
  wire.value(grant.shared_bytes);
  wire.value(grant.shared_id);
  wire.list(grant.windows, limits::kWindowsMax, [](Wire& each, auto& window) {
    each.value(window.row_bytes);
    each.value(window.shared_offset);
  });
}
template <class Wire, Is<Rows> Message>
void fields(Wire& wire, Message& rows) {
  fields(wire, rows.id);
  wire.value(rows.first);
  wire.value(rows.count);
  wire.value(rows.payload_bytes);
}
template <class Wire, Is<Commit> Message>
void fields(Wire& wire, Message& commit) {
  fields(wire, commit.id);
  wire.value(commit.rows);
  wire.value(commit.bytes);
  wire.value(commit.digest);
  wire.value(commit.ready_at_ns);
  wire.value(commit.tail_bytes);
}
template <class Wire, class Message>
  requires Is<Message, Committed> || Is<Message, Cancelled>
void fields(Wire& wire, Message& message) {
  fields(wire, message.id);
}
template <class Wire, class Message>
  requires Is<Message, Cancel> || Is<Message, Abort>
void fields(Wire& wire, Message& message) {
  fields(wire, message.id);
  fields(wire, message.error);
}
template <class Wire, Is<Refuse> Message>
void fields(Wire& wire, Message& refuse) {
  fields(wire, refuse.error);
}
template <class Wire, Is<NcclOffer> Message>
void fields(Wire& wire, Message& offer) {
  wire.value(offer.epoch);
  wire.raw(offer.id);
}
template <class Wire, Is<NcclPosted> Message>
void fields(Wire& wire, Message& posted) {
  wire.value(posted.epoch);
  wire.value(posted.number);
}
template <class Wire, Is<NcclSlab> Message>
void fields(Wire& wire, Message& slab) {
  wire.value(slab.epoch);
  wire.value(slab.number);
  fields(wire, slab.transfer);
  wire.value(slab.bytes);
}
template <class Wire, Is<NcclLeave> Message>
void fields(Wire& wire, Message& leave) {
  wire.value(leave.epoch);
}
template <class Wire, Is<Wait> Message>
void fields(Wire& wire, Message& wait) {
  fields(wire, wait.id);
  wire.value(wait.at_most_ms);
}
template <class Wire, Is<Landed> Message>
void fields(Wire& wire, Message& landed) {
  fields(wire, landed.id);
  wire.value(landed.bytes);
}
template <class Wire, Is<BlockNews> Message>
void fields(Wire& wire, Message& news) {
  wire.word(news.kind, BlockNews::Kind::kWanted, BlockNews::Kind::kHeld);
  wire.value(news.owner.value);
  text(wire, news.holder.engine_id);
  text(wire, news.holder.host);
  wire.value(news.holder.port);
  text(wire, news.holder.unix_path);
  text(wire, news.holder.host_id);
  text(wire, news.holder.gpu_path);
  wire.value(news.rows);
  wire.list(news.row_bytes, limits::kWindowsMax,
            [](Wire& each, auto& bytes) { each.value(bytes); });
  wire.value(news.before.high);
  wire.value(news.before.low);
  wire.list(news.blocks, limits::kBlocksTold, [](Wire& each, auto& block) {
    each.value(block.name.high);
    each.value(block.name.low);
    fields(each, block.transfer);
  });
}
template <class Wire, class Message>
  requires Is<Message, Welcome> || Is<Message, Renew> || Is<Message, Renewed>
void fields(Wire& /*wire*/, Message& /*message*/) {}

template <size_t kIndex = 0>
Result<LinkMessage> decode_alternative(size_t index, std::span<const std::byte> body) {
  if constexpr (kIndex < std::variant_size_v<LinkMessage>) {
    if (index != kIndex) {
      return decode_alternative<kIndex + 1>(index, body);
    }
    std::variant_alternative_t<kIndex, LinkMessage> message;
    WireReader reader(body);
    fields(reader, message);
    LinkMessage decoded = std::move(message);
    if (reader.failed() || !reader.at_end()) {
      return Error{ErrorCode::kCorrupt,
                   std::string("malformed ") + name_of(decoded) + " on a KV link"};
    }
    return decoded;
  } else {
    return Error{ErrorCode::kCorrupt, "unknown message type on a KV link"};
  }
}

}  // namespace

const char* name_of(const LinkMessage& message) {
  static constexpr const char* kNames[] = {
      "HELLO",      "CHALLENGE",   "PROVE",     "WELCOME",    "REFUSE",    "GRANT",  "COMMITTED",
      "CANCEL",     "RENEW",       "ROWS",      "COMMIT",     "CANCELLED", "ABORT",  "RENEWED",
      "NCCL_OFFER", "NCCL_POSTED", "NCCL_SLAB", "NCCL_LEAVE", "WAIT",      "LANDED", "BLOCKS"};
  static_assert(std::size(kNames) == std::variant_size_v<LinkMessage>);
  return kNames[message.index()];
}

MessageRole role_of(const LinkMessage& message) {
  constexpr MessageRole kOpens{};
  constexpr MessageRole kReceiver{.from_receiver = true};
  constexpr MessageRole kSender{.from_sender = true};
  constexpr MessageRole kReceiverTransport{.from_receiver = true, .between_transports = true};
  constexpr MessageRole kSenderTransport{.from_sender = true, .between_transports = true};
  constexpr MessageRole kAnyTransport{
      .from_receiver = true, .from_sender = true, .between_transports = true};
  static constexpr MessageRole kRoles[] = {/* HELLO, CHALLENGE, PROVE, WELCOME, REFUSE */ kOpens,
                                           kOpens,
                                           kOpens,
                                           kOpens,
                                           kOpens,
                                           /* GRANT, COMMITTED, CANCEL, RENEW */ kReceiver,
                                           kReceiver,
                                           kReceiver,
                                           kReceiver,
                                           /* ROWS, COMMIT, CANCELLED, ABORT, RENEWED */ kSender,
                                           kSender,
                                           kSender,
                                           kSender,
                                           kSender,
                                           /* NCCL_OFFER, NCCL_POSTED */ kReceiverTransport,
                                           kReceiverTransport,
                                           /* NCCL_SLAB, NCCL_LEAVE */ kSenderTransport,
                                           kAnyTransport,
                                           /* WAIT, LANDED, BLOCKS */ kReceiver,
                                           kSenderTransport,
                                           kReceiver};
  static_assert(std::size(kRoles) == std::variant_size_v<LinkMessage>);
  return kRoles[message.index()];
}

std::string encode(const LinkMessage& message) {
  std::string frame;
  WireWriter wire(frame);
  wire.value(uint32_t{0});  // The size of the body.
  wire.value(static_cast<uint8_t>(message.index() + 1));
  wire.value(uint8_t{0});
  wire.value(uint16_t{0});
  std::visit([&](const auto& alternative) { fields(wire, alternative); }, message);
  std::string size;
  WireWriter(size).value(static_cast<uint32_t>(frame.size() - kFrameHeaderBytes));
  return frame.replace(0, size.size(), size);
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  WireReader reader(bytes);
  FrameHeader header;
  uint8_t zero_byte = 0;
  uint16_t zero_word = 0;
  reader.value(header.body_bytes);
  reader.value(header.type);
  reader.value(zero_byte);
  reader.value(zero_word);
  if (header.type == 0 || header.type > std::variant_size_v<LinkMessage> || zero_byte != 0 ||
      zero_word != 0) {
    return Error{ErrorCode::kCorrupt, "not a KV link: unknown message type"};
  }
  if (header.body_bytes > limits::kLinkMessageBytesMax) {
    return Error{ErrorCode::kCorrupt,
                 "KV link message of " + std::to_string(header.body_bytes) + " bytes is too long"};
  }
  return header;
}

Result<LinkMessage> decode_body(uint8_t type, std::span<const std::byte> body) {
  return decode_alternative(size_t{type} - 1, body);
}

std::string encode(const Fingerprint& fingerprint) {
  std::string bytes;
  WireWriter wire(bytes);
  fingerprint_fields(wire, fingerprint);
  return bytes;
}

}  // namespace pdjob::kvtransfer
