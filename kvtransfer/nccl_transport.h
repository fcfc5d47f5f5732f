// nccl: rows are packed into slabs, which NCCL moves from GPU to GPU, and unpacked on arrival. The
// link's socket carries only what both ends must know of a slab. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "kvtransfer/nccl_links.h"
#include "kvtransfer/transport.h"

namespace pdjob::kvtransfer {

class NcclRowReceiver;

class NcclTransport final : public Transport, private NcclLinkUser {
 public:
  // `links` outlives the transport, and so does `gpu`, if rows may be in its memory.
  NcclTransport(LinkStream& stream, NcclLinks& links, Gpu* gpu, NcclLink::Side side);
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  TransportCapabilities capabilities() const override { return {.name = "nccl"}; }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;
  bool on_message(const LinkMessage& message) override;

  // For the row senders and receivers of this transport.
  LinkStream& stream() { return stream_; }
  void sender_ended();
  void receiver_ended(TransferId id);
  std::optional<uint32_t> take_slab();
  std::byte* slab(uint32_t slab) const { return links_.slab(key_, slab); }
  void step(const NcclLink::Event& event) { links_.step(key_, event); }
  bool failed() const { return failed_; }
  // Between a slab and rows, which may be in the GPU's memory.
  Status copy(const Region& region, void* to, const void* from, size_t bytes);

 private:
  void send_message(const LinkMessage& message) override { stream_.send(message); }
  void slab_is_free() override { stream_.wake(); }
  void slab_is_filled(uint32_t slab, uint32_t bytes, TransferId transfer) override;
  void link_failed(const Error& reason) override;
  bool in_use() const override { return senders_ > 0 || !receivers_.empty(); }

  LinkStream& stream_;
  NcclLinks& links_;
  Gpu* const gpu_;
  const NcclLinkKey key_;
  bool failed_ = false;  // Slabs are not to be touched any more.
  uint32_t senders_ = 0;
  std::map<TransferId, NcclRowReceiver*> receivers_;
};

}  // namespace pdjob::kvtransfer
