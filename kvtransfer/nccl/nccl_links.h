// NcclLinks: the shell of the NcclLink cores of one endpoint. It turns their effects into commands
// of the GPU's thread and messages of their links. It turns reports and messages into events. A
// core outlives its link here until NCCL has let go of its slabs. Loop-bound, to the kv thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/result.h"
#include "gpu/gpu.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/deadline_timer.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "kvtransfer/nccl/nccl_link.h"
#include "net/loop/loop.h"

namespace pdjob::kvtransfer {

using NcclLinkKey = StrongId<struct NcclLinkKeyTag, uint64_t>;

// The transport of one link. It must survive each of these calls.
class NcclLinkUser {
 public:
  virtual void send_message(const LinkMessage& message) = 0;
  // Sender: there may be a free slab.
  virtual void slab_is_free() = 0;
  // Receiver: `bytes` of a transfer's rows will come to a slab. Returns the copies to make from the
  // slab then; empty: the rows are no longer wanted.
  virtual std::vector<GpuCopy> slab_is_expected(uint32_t slab, uint32_t bytes,
                                                TransferId transfer) = 0;
  // Receiver: the bytes have come and are copied. Emptied must answer it.
  virtual void slab_is_filled(uint32_t slab, uint32_t bytes) = 0;
  virtual void link_failed(const Error& reason) = 0;
  // True: transfers are granted, so its communicator must not be closed to make room for others.
  virtual bool in_use() const = 0;

 protected:
  ~NcclLinkUser() = default;
};

class NcclLinks {
 public:
  using OpenDevice = std::function<Result<std::unique_ptr<NcclDevice>>(NcclDevice::Options)>;

  // kUnsupported: like nccl_is_there(). The process ends if NCCL hangs beyond its timeouts.
  static Result<std::unique_ptr<NcclLinks>> open(net::Loop& loop, const NcclConfig& config);
  // With another device. It may be called by any thread, and so may `on_stuck`, which must not
  // return to NCCL's thread.
  static Result<std::unique_ptr<NcclLinks>> open(net::Loop& loop, const NcclConfig& config,
                                                 const OpenDevice& open_device,
                                                 std::function<void()> on_stuck);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;
  ~NcclLinks() = default;  // The loop has stopped.

  NcclLinkKey add(NcclLink::Side side, NcclLinkUser& user);
  // The user goes away; its work under way is aborted.
  void remove(NcclLinkKey key);

  void step(NcclLinkKey key, const NcclLink::Event& event);
  // A user has become idle. If there are too many communicators, an idle one may be closed now.
  void rested();
  std::optional<uint32_t> free_slab(NcclLinkKey key) const;
  // Returns the slab's memory. Requires: the user holds the slab (Taken, slab_is_expected() or
  // slab_is_filled()), and the link has not failed.
  NcclSlabMemory slab(NcclLinkKey key, uint32_t slab) const;
  // Sender: event Packed. `copies` bring the bytes to the slab before it is sent.
  void pack(NcclLinkKey key, const NcclLink::Packed& packed, std::vector<GpuCopy> copies);
  // Calls `then`, at once or later, when the GPU no longer touches the rows of a transfer.
  // Requires: the transfer has ended here. Never called after the end of the endpoint.
  void when_released(NcclLinkKey key, TransferId transfer, std::function<void()> then);

 private:
  struct Entry {
    NcclLink core;
    NcclLinkUser* user = nullptr;  // nullptr: removed.
    std::vector<NcclSlabMemory> slabs;
    // Sender: copies of announced slabs.
    std::array<std::vector<GpuCopy>, limits::kNcclSlabs> copies;
    std::multimap<TransferId, std::function<void()>> releases;  // Callbacks of when_released().
    DeadlineTimer timer;
    uint64_t last_used = 0;
  };

  NcclLinks(net::Loop& loop, const NcclConfig& config, std::function<void()> on_stuck)
      : loop_(loop), config_(config), on_stuck_(std::move(on_stuck)) {}

  void on_report(const NcclDevice::Report& report);
  void take(const NcclDevice::IdMade& report);
  void take(const NcclDevice::Joined& report);
  void take(const NcclDevice::Moved& report);
  void take(const NcclDevice::Failed& report);
  void take(const NcclDevice::Left& report);

  void apply(NcclCommKey key, Entry& entry, const NcclLink::MakeId& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::Join& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::StartSend& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::StartReceive& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::Leave& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::Abort& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::Send& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::TellFree& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::TellFilled& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::Release& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::FailLink& effect);
  void apply(NcclCommKey key, Entry& entry, const NcclLink::ReportStuck& effect);

  void close_one_at_rest();

  net::Loop& loop_;
  const NcclConfig config_;
  const std::function<void()> on_stuck_;
  std::map<NcclLinkKey, std::unique_ptr<Entry>> entries_;
  uint64_t links_made_ = 0;
  uint64_t uses_ = 0;
  std::unique_ptr<NcclDevice> device_;
};

}  // namespace pdjob::kvtransfer
