// nccl: rows are packed into slabs, which NCCL moves from GPU to GPU, and unpacked on arrival. The
// GPU packs and unpacks rows in its own memory. For rows in host memory the kv thread does it,
// through the slabs' pinned twins. The link's socket carries only what both ends must know of a
// slab. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kvtransfer/link/transport.h"
#include "kvtransfer/nccl/nccl_links.h"

namespace pdjob::kvtransfer {

class NcclRowReceiver;

class NcclTransport final : public Transport, private NcclLinkUser {
 public:
  // `links` outlives the transport. So does `gpu`, which is needed if rows may be in its memory.
  NcclTransport(LinkStream& stream, NcclLinks& links, Gpu* gpu, NcclLink::Side side);
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  TransportCapabilities capabilities() const override {
    return {.name = "nccl", .sums_rows = true, .writes_late = true};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;
  bool on_message(const LinkMessage& message) override;
  void when_released(TransferId id, const std::function<void()>& then) override {
    links_.when_released(key_, id, then);
  }

  // For the row senders and receivers of this transport.
  LinkStream& stream() { return stream_; }
  Gpu& gpu() { return *gpu_; }
  void sender_ended();
  void receiver_ended(TransferId id);
  bool has_free_slab() const { return links_.free_slab(key_).has_value(); }
  std::optional<uint32_t> take_slab();
  NcclSlabMemory slab(uint32_t slab) const { return links_.slab(key_, slab); }
  void step(const NcclLink::Event& event) { links_.step(key_, event); }
  void pack(const NcclLink::Packed& packed, std::vector<GpuCopy> copies) {
    links_.pack(key_, packed, std::move(copies));
  }
  bool failed() const { return failed_; }

 private:
  void send_message(const LinkMessage& message) override { stream_.send(message); }
  void slab_is_free() override { stream_.wake(); }
  std::vector<GpuCopy> slab_is_expected(uint32_t slab, uint32_t bytes,
                                        TransferId transfer) override;
  void slab_is_filled(uint32_t slab, uint32_t bytes) override;
  void link_failed(const Error& reason) override;
  bool in_use() const override { return senders_ > 0 || !receivers_.empty(); }

  LinkStream& stream_;
  NcclLinks& links_;
  Gpu* const gpu_;
  const NcclLinkKey key_;
  bool failed_ = false;  // Slabs must no longer be touched.
  uint32_t senders_ = 0;
  std::map<TransferId, NcclRowReceiver*> receivers_;
  // Slabs on their way whose rows are still wanted.
  std::map<uint32_t, NcclRowReceiver*> receiver_of_slab_;
};

}  // namespace pdjob::kvtransfer
