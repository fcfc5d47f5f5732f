#include "net/control/wire.h"

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::net {

namespace {

constexpr uint32_t kMagic = 0x626a6470;  // "pdjb" as bytes on the wire.
constexpr size_t kHeadBytes = 8;         // Magic, version, type.

// Appends fields. The values are ours, so a broken bound is our bug.
class Writer {
 public:
  template <class T>
  using Ref = const T&;

  explicit Writer(std::string& out) : out_(out) {}

  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void value(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(static_cast<uint8_t>(value >> (8 * i))));
    }
  }
  void value(int64_t signed_value) { value(static_cast<uint64_t>(signed_value)); }
  void value(bool flag) { value(static_cast<uint8_t>(flag ? 1 : 0)); }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void value(Enum word) {
    value(static_cast<uint8_t>(word));
  }
  void value(const std::string& text) {
    PDJOB_CHECK(text.size() <= limits::kControlStringBytesMax, text.size());
    value(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  template <class T>
  void list(const std::vector<T>& items) {
    PDJOB_CHECK(items.size() <= limits::kWorkersMax, items.size());
    value(static_cast<uint32_t>(items.size()));
    for (const T& item : items) {
      fields(*this, item);
    }
  }

 private:
  std::string& out_;
};

// Reads fields from hostile bytes. The first invalid field sets `failed`; all later ones read as
// zero.
class Reader {
 public:
  template <class T>
  using Ref = T&;

  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void value(T& value) {
    value = 0;
    if (!has(sizeof(T))) {
      return;
    }
    for (size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(bytes_[i])) << (8 * i));
    }
    bytes_ = bytes_.subspan(sizeof(T));
  }
  void value(bool& flag) {
    uint8_t byte = 0;
    value(byte);
    failed_ = failed_ || byte > 1;
    flag = byte == 1;
  }
  void value(int64_t& signed_value) {
    uint64_t bits = 0;
    value(bits);
    signed_value = static_cast<int64_t>(bits);
  }
  void value(Role& role) { word(role, Role::kPrefill, Role::kRouter); }
  void value(LossCause& cause) { word(cause, LossCause::kUnknown, LossCause::kHang); }
  void value(Protocol& protocol) { word(protocol, Protocol::kAuto, Protocol::kSglang); }
  void value(Standing& standing) { word(standing, Standing::kProving, Standing::kLeaving); }
  void value(std::string& text) {
    uint32_t size = 0;
    value(size);
    if (size > limits::kControlStringBytesMax || !has(size)) {
      failed_ = true;
      return;
    }
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
  }
  // Grows item by item, so that a false count costs no memory.
  template <class T>
  void list(std::vector<T>& items) {
    uint32_t count = 0;
    value(count);
    failed_ = failed_ || count > limits::kWorkersMax;
    for (uint32_t i = 0; i < count && !failed_; ++i) {
      fields(*this, items.emplace_back());
    }
  }

 private:
  template <class Enum>
  void word(Enum& word, Enum first, Enum last) {
    uint8_t byte = 0;
    value(byte);
    if (byte < static_cast<uint8_t>(first) || byte > static_cast<uint8_t>(last)) {
      failed_ = true;
      return;
    }
    word = static_cast<Enum>(byte);
  }

  bool has(size_t size) {
    failed_ = failed_ || bytes_.size() < size;
    return !failed_;
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

// The fields of each message in wire order, once for both directions.

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WorkerEntry> worker) {
  codec.value(worker.name);
  codec.value(worker.engine_id);
  codec.value(worker.role);
  codec.value(worker.host);
  codec.value(worker.port);
  codec.value(worker.model);
  codec.value(worker.kv_address);
  codec.value(worker.key);
  codec.value(worker.protocol);
  codec.value(worker.abort);
  codec.value(worker.standing);
  codec.value(worker.local_links);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WorkerLoad> load) {
  codec.value(load.requests_running);
  codec.value(load.requests_queued);
  codec.value(load.tokens_queued);
  codec.value(load.kv_rows_used);
  codec.value(load.kv_rows_max);
  codec.value(load.standstill_ms);
  codec.value(load.kv_received);
  codec.value(load.patience_ms);
  codec.value(load.ttft_us);
  codec.value(load.itl_us);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Departure> departure) {
  codec.value(departure.name);
  codec.value(departure.engine_id);
  codec.value(departure.cause);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Registered> message) {
  fields(codec, message.worker);
  codec.value(message.pid);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<HeartbeatSent> message) {
  codec.value(message.name);
  codec.value(message.engine_id);
  codec.value(message.sequence);
  fields(codec, message.load);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Drained> message) {
  codec.value(message.name);
}

template <class Codec>
void fields(Codec&, typename Codec::template Ref<Acknowledge>) {}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Membership> message) {
  codec.value(message.version);
  codec.value(message.since);
  codec.list(message.workers);
  codec.list(message.routers);
  codec.list(message.left);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<LoadReported> message) {
  codec.value(message.name);
  codec.value(message.engine_id);
  fields(codec, message.load);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Drain> message) {
  codec.value(message.deadline_ms);
}

template <class Codec>
void fields(Codec&, typename Codec::template Ref<Shutdown>) {}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<MembershipApplied> message) {
  codec.value(message.engine_id);
  codec.value(message.version);
}

// A message's type on the wire is its place in the variant plus one. The order is fixed within a
// version.
static_assert(std::variant_size_v<Message> == 9);

template <size_t... I>
Message blank(size_t index, std::index_sequence<I...>) {
  using Make = Message (*)();
  constexpr std::array<Make, sizeof...(I)> kMake = {
      +[] { return Message(std::in_place_index<I>); }...};
  return kMake[index]();
}

Error corrupt(std::string what) {
  return {ErrorCode::kCorrupt, "control message: " + std::move(what)};
}

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  Writer writer(bytes);
  writer.value(kMagic);
  writer.value(kWireVersion);
  writer.value(static_cast<uint16_t>(message.index() + 1));
  std::visit([&writer](const auto& body) { fields(writer, body); }, message);
  PDJOB_CHECK(bytes.size() <= limits::kControlMessageBytesMax, bytes.size());
  return bytes;
}

Result<Message> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes.size() > limits::kControlMessageBytesMax) {
    return corrupt(std::to_string(bytes.size()) + " bytes");
  }
  Reader reader(bytes);
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t type = 0;
  reader.value(magic);
  reader.value(version);
  reader.value(type);
  if (magic != kMagic) {
    return corrupt("wrong magic");
  }
  if (version != kWireVersion) {
    return Error{ErrorCode::kUnsupported, "control message: version " + std::to_string(version) +
                                              ", here is " + std::to_string(kWireVersion)};
  }
  constexpr size_t kTypes = std::variant_size_v<Message>;
  if (type < 1 || type > kTypes) {
    return corrupt("type " + std::to_string(type));
  }
  Message message = blank(type - 1U, std::make_index_sequence<kTypes>());
  std::visit([&reader](auto& body) { fields(reader, body); }, message);
  if (reader.failed() || !reader.at_end()) {
    return corrupt("type " + std::to_string(type) + " with wrong fields");
  }
  return message;
}

}  // namespace pdjob::net
