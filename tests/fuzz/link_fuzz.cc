// Bytes of a KV link. A message that decodes encodes to the same bytes. The handshake survives it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "kvtransfer/link/link_handshake.h"
#include "kvtransfer/link/link_message.h"

using namespace pdjob::kvtransfer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const LinkIdentity identity{.engine_id = "a"};
  LinkHandshake acceptor(identity, TransportKind::kTcp, Nonce{});
  LinkHandshake initiator(identity, Hello{});
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  while (bytes.size() >= kFrameHeaderBytes) {
    const auto header = decode_header(bytes.first<kFrameHeaderBytes>());
    if (!header || header->body_bytes > bytes.size() - kFrameHeaderBytes) {
      return 0;
    }
    const std::span<const std::byte> frame = bytes.first(kFrameHeaderBytes + header->body_bytes);
    const auto message = decode_body(header->type, frame.subspan(kFrameHeaderBytes));
    if (message) {
      const std::string again = encode(*message);
      // decode() reads only a part of a HELLO of another version.
      const auto* hello = std::get_if<Hello>(&*message);
      PDJOB_CHECK((hello != nullptr && hello->version != kLinkVersion) ||
                  std::ranges::equal(frame, std::as_bytes(std::span(again.data(), again.size()))));
      std::vector<LinkMessage> replies;
      acceptor.step(*message, replies);
      initiator.step(*message, replies);
    }
    bytes = bytes.subspan(frame.size());
  }
  return 0;
}
