#include "kvtransfer/link/link_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::kvtransfer {
namespace {

constexpr uint32_t kMagic = 0x564b4450;  // "PDKV" read as text, in HELLO only.
constexpr size_t kTextBytesMax = 4 * limits::kKiB;
constexpr size_t kFieldsMax = 64;  // Most fields of a fingerprint.

// One list of fields per message serves both directions: Writer appends them, Reader takes them.
class Writer {
 public:
  template <class Int>
    requires std::is_integral_v<Int>
  void number(Int value) {
    for (size_t byte = 0; byte < sizeof(Int); ++byte) {
      bytes_.push_back(
          static_cast<char>(static_cast<std::make_unsigned_t<Int>>(value) >> (8 * byte)));
    }
  }
  void text(const std::string& value) {
    // Our own texts are cut, not refused: only error messages can be that long.
    const std::string_view kept = std::string_view(value).substr(0, kTextBytesMax);
    number(static_cast<uint16_t>(kept.size()));
    bytes_.append(kept);
  }
  void raw(std::span<const std::byte> value) {
    bytes_.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  template <class List, class Each>
  void list(const List& items, size_t /*count_max*/, Each each) {
    number(static_cast<uint32_t>(items.size()));
    for (const auto& item : items) {
      each(item);
    }
  }
  void require(bool condition) { PDJOB_CHECK(condition); }
  bool skips_rest(bool /*wanted*/) { return false; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first bad field every field reads as zero, and good() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Int>
    requires std::is_integral_v<Int>
  void number(Int& value) {
    uint64_t read = 0;
    const std::span<const std::byte> bytes = take(sizeof(Int));
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
      read |= std::to_integer<uint64_t>(bytes[byte]) << (8 * byte);
    }
    value = static_cast<Int>(read);
  }
  void text(std::string& value) {
    uint16_t size = 0;
    number(size);
    const std::span<const std::byte> bytes = take(size <= kTextBytesMax ? size : SIZE_MAX);
    value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void raw(std::span<std::byte> value) {
    const std::span<const std::byte> bytes = take(value.size());
    std::copy(bytes.begin(), bytes.end(), value.begin());
  }
  template <class List, class Each>
  void list(List& items, size_t count_max, Each each) {
    uint32_t count = 0;
    number(count);
    good_ = good_ && count <= count_max;
    for (uint32_t item = 0; good_ && item < count; ++item) {
      each(items.emplace_back());
    }
  }
  void require(bool condition) { good_ = good_ && condition; }
  bool skips_rest(bool wanted) {
    bytes_ = wanted ? std::span<const std::byte>() : bytes_;
    return wanted;
  }
  bool good() const { return good_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> take(size_t size) {
    if (!good_ || size > bytes_.size()) {
      good_ = false;
      return {};
    }
    const std::span<const std::byte> taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

  std::span<const std::byte> bytes_;
  bool good_ = true;
};

// `Message` is const when writing.
template <class Message, class Expected>
concept Is = std::is_same_v<std::remove_const_t<Message>, Expected>;

void fields(Writer& wire, const TransferId& id) {
  wire.number(id.high);
  wire.number(id.low);
}
void fields(Reader& wire, TransferId& id) {
  wire.number(id.high);
  wire.number(id.low);
}
void fields(Writer& wire, const Error& error) {
  wire.number(static_cast<uint8_t>(error.code));
  wire.text(error.message);
}
void fields(Reader& wire, Error& error) {
  uint8_t code = 0;
  wire.number(code);
  wire.require(code <= static_cast<uint8_t>(ErrorCode::kInternal));
  error.code = wire.good() ? static_cast<ErrorCode>(code) : ErrorCode::kInternal;
  wire.text(error.message);
}
void fields(Writer& wire, const TransportKind& kind) { wire.number(static_cast<uint8_t>(kind)); }
void fields(Reader& wire, TransportKind& kind) {
  uint8_t value = 0;
  wire.number(value);
  kind = static_cast<TransportKind>(value);
  wire.require(kind == TransportKind::kShm || kind == TransportKind::kTcp ||
               kind == TransportKind::kNccl || kind == TransportKind::kCudaIpc);
}
void magic(Writer& wire) { wire.number(kMagic); }
void magic(Reader& wire) {
  uint32_t value = 0;
  wire.number(value);
  wire.require(value == kMagic);
}
template <class Wire, class List>
void fingerprint_fields(Wire& wire, List& fingerprint) {
  wire.list(fingerprint, kFieldsMax, [&](auto& field) {
    wire.text(field.first);
    wire.text(field.second);
  });
}

template <class Wire, class Certificate>
void certificate_fields(Wire& wire, Certificate& certificate) {
  wire.raw(certificate.key);
  wire.raw(certificate.signature);
}

template <class Wire, Is<Hello> Message>
void fields(Wire& wire, Message& hello) {
  magic(wire);
  wire.number(hello.version);
  if (wire.skips_rest(hello.version != kLinkVersion)) {
    return;  // The version is enough to refuse the link; the rest depends on that version.
  }
  fields(wire, hello.transport);
  wire.number(hello.epoch);
  wire.text(hello.engine_id);
  wire.text(hello.peer_engine_id);
  wire.raw(hello.nonce);
  wire.number(hello.stream);
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
  wire.number(grant.rows);
  wire.number(grant.shared_bytes);
  wire.number(grant.shared_id);
  wire.list(grant.windows, limits::kWindowsMax, [&](auto& window) {
    wire.number(window.row_bytes);
    wire.number(window.shared_offset);
  });
}
template <class Wire, Is<Rows> Message>
void fields(Wire& wire, Message& rows) {
  fields(wire, rows.id);
  wire.number(rows.first);
  wire.number(rows.count);
  wire.number(rows.payload_bytes);
}
template <class Wire, Is<Commit> Message>
void fields(Wire& wire, Message& commit) {
  fields(wire, commit.id);
  wire.number(commit.rows);
  wire.number(commit.bytes);
  wire.number(commit.digest);
  wire.number(commit.ready_at_ns);
  wire.number(commit.tail_bytes);
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
  wire.number(offer.epoch);
  wire.raw(offer.id);
}
template <class Wire, Is<NcclPosted> Message>
void fields(Wire& wire, Message& posted) {
  wire.number(posted.epoch);
  wire.number(posted.number);
}
template <class Wire, Is<NcclSlab> Message>
void fields(Wire& wire, Message& slab) {
  wire.number(slab.epoch);
  wire.number(slab.number);
  fields(wire, slab.transfer);
  wire.number(slab.bytes);
}
template <class Wire, Is<NcclLeave> Message>
void fields(Wire& wire, Message& leave) {
  wire.number(leave.epoch);
}
template <class Wire, Is<Wait> Message>
void fields(Wire& wire, Message& wait) {
  fields(wire, wait.id);
  wire.number(wait.at_most_ms);
}
template <class Wire, Is<Landed> Message>
void fields(Wire& wire, Message& landed) {
  fields(wire, landed.id);
  wire.number(landed.bytes);
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
    Reader reader(body);
    fields(reader, message);
    LinkMessage decoded = std::move(message);
    if (!reader.good() || !reader.at_end()) {
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
      "HELLO",      "CHALLENGE",   "PROVE",     "WELCOME",    "REFUSE",    "GRANT", "COMMITTED",
      "CANCEL",     "RENEW",       "ROWS",      "COMMIT",     "CANCELLED", "ABORT", "RENEWED",
      "NCCL_OFFER", "NCCL_POSTED", "NCCL_SLAB", "NCCL_LEAVE", "WAIT",      "LANDED"};
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
                                           /* WAIT, LANDED */ kReceiver,
                                           kSenderTransport};
  static_assert(std::size(kRoles) == std::variant_size_v<LinkMessage>);
  return kRoles[message.index()];
}

std::string encode(const LinkMessage& message) {
  Writer body;
  std::visit([&](const auto& alternative) { fields(body, alternative); }, message);
  const std::string bytes = body.take();
  Writer frame;
  frame.number(static_cast<uint32_t>(bytes.size()));
  frame.number(static_cast<uint8_t>(message.index() + 1));
  frame.number(uint8_t{0});
  frame.number(uint16_t{0});
  return frame.take() + bytes;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  Reader reader(bytes);
  FrameHeader header;
  uint8_t zero_byte = 0;
  uint16_t zero_word = 0;
  reader.number(header.body_bytes);
  reader.number(header.type);
  reader.number(zero_byte);
  reader.number(zero_word);
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
  Writer bytes;
  fingerprint_fields(bytes, fingerprint);
  return bytes.take();
}

}  // namespace pdjob::kvtransfer
