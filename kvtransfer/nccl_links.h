// NcclLinks: the shell of the NcclLink cores of one endpoint. It turns their effects into commands
// of the GPU's thread and messages of their links, and what comes of those into events. A core
// outlives its link here until NCCL has let go of its slabs. Loop-bound, to the kv thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/gpu.h"
#include "common/id.h"
#include "common/limits.h"
#include "common/result.h"
#include "kvtransfer/deadline_timer.h"
#include "kvtransfer/kvtransfer_config.h"
#include "kvtransfer/nccl_device.h"
#include "kvtransfer/nccl_link.h"
#include "net/event_loop.h"

namespace pdjob::kvtransfer {

using NcclLinkKey = StrongId<struct NcclLinkKeyTag, uint64_t>;

// The transport of one link. None of these calls may destroy it.
class NcclLinkUser {
 public:
  virtual void send_message(const LinkMessage& message) = 0;
  // Sender: there may be a free slab.
  virtual void slab_is_free() = 0;
  // Receiver: `bytes` of the rows of a transfer will come to a slab. What is to be copied from
  // there then; none: nobody wants them any more.
  virtual std::vector<GpuCopy> slab_is_expected(uint32_t slab, uint32_t bytes,
                                                TransferId transfer) = 0;
  // Receiver: they have come, and are copied; to be answered by Emptied.
  virtual void slab_is_filled(uint32_t slab, uint32_t bytes) = 0;
  virtual void link_failed(const Error& reason) = 0;
  // Transfers are granted: its communicator is not to be closed for others.
  virtual bool in_use() const = 0;

 protected:
  ~NcclLinkUser() = default;
};

class NcclLinks {
 public:
  // kUnsupported: as nccl_is_there().
  static Result<std::unique_ptr<NcclLinks>> open(net::EventLoop& loop, const NcclConfig& config);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;
  ~NcclLinks() = default;  // The loop does not run any more.

  NcclLinkKey add(NcclLink::Side side, NcclLinkUser& user);
  // The user goes; what it has under way is aborted.
  void remove(NcclLinkKey key);

  void step(NcclLinkKey key, const NcclLink::Event& event);
  // A user has come to rest: a communicator that was in use when it was one too many may go now.
  void rested();
  std::optional<uint32_t> free_slab(NcclLinkKey key) const;
  // Requires: the user has it, by Taken, slab_is_expected() or slab_is_filled(), and the link has
  // not failed.
  NcclSlabMemory slab(NcclLinkKey key, uint32_t slab) const;
  // Sender: as event Packed. `copies` bring the bytes to the slab, before it is sent.
  void pack(NcclLinkKey key, const NcclLink::Packed& packed, std::vector<GpuCopy> copies);
  // Calls `then`, at once or later, when the GPU touches no rows of a transfer any more. Requires:
  // it has ended here. Never called after the end of the endpoint.
  void when_released(NcclLinkKey key, TransferId transfer, std::function<void()> then);

 private:
  struct Entry {
    NcclLink core;
    NcclLinkUser* user = nullptr;  // nullptr: removed.
    std::vector<NcclSlabMemory> slabs;
    std::array<std::vector<GpuCopy>, limits::kNcclSlabs> copies;  // Sender: of announced slabs.
    std::multimap<TransferId, std::function<void()>> releases;    // Awaited.
    DeadlineTimer timer;
    uint64_t last_used = 0;
  };

  NcclLinks(net::EventLoop& loop, const NcclConfig& config) : loop_(loop), config_(config) {}

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

  net::EventLoop& loop_;
  const NcclConfig config_;
  std::map<NcclLinkKey, std::unique_ptr<Entry>> entries_;
  uint64_t links_made_ = 0;
  uint64_t uses_ = 0;
  std::unique_ptr<NcclDevice> device_;
};

}  // namespace pdjob::kvtransfer
