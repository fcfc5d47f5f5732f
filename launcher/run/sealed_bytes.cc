#include "launcher/run/sealed_bytes.h"

#include <span>

#include "common/crypto/blake2b.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kHeadBytes = sizeof(SealKind::magic) + sizeof(SealKind::version);

std::string digest_of(const SealKind& kind, std::string_view bytes) {
  const Digest digest = Blake2b(kind.purpose).add(bytes).finish();
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string seal(const SealKind& kind, std::string_view fields) {
  std::string bytes;
  net::WireWriter writer(bytes);
  writer.value(kind.magic);
  writer.value(kind.version);
  bytes += fields;
  return bytes + digest_of(kind, bytes);
}

Result<std::string_view> unseal(const SealKind& kind, std::string_view bytes) {
  if (bytes.size() < kHeadBytes + Digest().size()) {
    return damaged(kind);
  }
  const std::string_view body = bytes.substr(0, bytes.size() - Digest().size());
  net::WireReader reader(std::as_bytes(std::span(body.data(), body.size())));
  uint32_t magic = 0;
  uint16_t version = 0;
  reader.value(magic);
  reader.value(version);
  if (magic != kind.magic || bytes.substr(body.size()) != digest_of(kind, body)) {
    return damaged(kind);
  }
  if (version != kind.version) {
    return Error{ErrorCode::kUnsupported, std::string(kind.name) + " is of version " +
                                              std::to_string(version) + ", here is " +
                                              std::to_string(kind.version)};
  }
  return body.substr(kHeadBytes);
}

Error damaged(const SealKind& kind) {
  return {ErrorCode::kCorrupt, std::string(kind.name) + " is damaged"};
}

}  // namespace pdjob::launcher
