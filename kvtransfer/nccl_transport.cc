#include "kvtransfer/nccl_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <variant>

#include "common/gpu.h"
#include "common/limits.h"
#include "kvtransfer/row_digest.h"

namespace pdjob::kvtransfer {

// Slabs are in the host's memory, and so is the digest computed, while a row passes. Rows that are
// in a GPU's memory are copied there first, piece by piece: a kernel that gathers them into a slab
// of the GPU's would spare that; what is sent would stay the same.
class NcclRowSender final : public RowSender {
 public:
  NcclRowSender(NcclTransport& transport, TransferId id) : transport_(transport), id_(id) {}
  NcclRowSender(const NcclRowSender&) = delete;
  NcclRowSender& operator=(const NcclRowSender&) = delete;
  ~NcclRowSender() override {
    if (slab_) {
      transport_.step(NcclLink::Dropped{*slab_});
    }
    transport_.sender_ended();
    transport_.stream().wake();  // Others may have waited behind us.
  }

  void start(const Region& source, RowRange range) override {
    source_ = &source;
    cursor_ = RowCursor(source.windows, range);
    transport_.stream().send(Rows{.id = id_, .first = range.first, .count = range.count});
  }

  Result<Progress> advance(size_t bytes_max) override {
    while (cursor_.bytes_left() > 0) {
      if (transport_.failed() || (!slab_ && !take_slab())) {
        return Progress::kBlocked;
      }
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      const std::span<std::byte> from =
          cursor_.next(std::min(bytes_max, limits::kNcclSlabBytes - filled_));
      std::byte* const to = transport_.slab(*slab_) + filled_;
      PDJOB_TRY_STATUS(transport_.copy(*source_, to, from.data(), from.size()));
      digest_.update({to, from.size()});
      cursor_.advance(from.size());
      filled_ += from.size();
      bytes_max -= from.size();
      if (filled_ == limits::kNcclSlabBytes || cursor_.bytes_left() == 0) {
        transport_.step(NcclLink::Packed{.slab = *std::exchange(slab_, std::nullopt),
                                         .bytes = static_cast<uint32_t>(filled_),
                                         .transfer = id_});
      }
    }
    return Progress::kDone;
  }

  uint64_t digest() const override { return digest_.value(); }

 private:
  bool take_slab() {
    slab_ = transport_.take_slab();
    filled_ = 0;
    return slab_.has_value();
  }

  NcclTransport& transport_;
  TransferId id_;
  const Region* source_ = nullptr;
  RowCursor cursor_;
  RowDigest digest_;
  std::optional<uint32_t> slab_;  // Being filled.
  size_t filled_ = 0;
};

class NcclRowReceiver final : public RowReceiver {
 public:
  NcclRowReceiver(NcclTransport& transport, TransferId id, const Region& target)
      : transport_(transport), id_(id), target_(target), windows_(target.windows) {}
  NcclRowReceiver(const NcclRowReceiver&) = delete;
  NcclRowReceiver& operator=(const NcclRowReceiver&) = delete;
  ~NcclRowReceiver() override {
    for (const Piece& piece : filled_) {
      transport_.step(NcclLink::Emptied{piece.slab});
    }
    transport_.receiver_ended(id_);
  }

  PayloadSink* announced(RowRange range) override {
    ranges_.push_back(range);
    bytes_announced_ += bytes_per_row(windows_) * range.count;
    return nullptr;
  }

  // False: more bytes than were announced.
  bool filled(uint32_t slab, uint32_t bytes) {
    if (bytes > bytes_announced_) {
      return false;
    }
    bytes_announced_ -= bytes;
    filled_.push_back({.slab = slab, .bytes = bytes});
    return true;
  }

  Progress advance(size_t bytes_max) override {
    while (!filled_.empty() && !transport_.failed()) {
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      if (cursor_.bytes_left() == 0) {
        cursor_ = RowCursor(windows_, ranges_.front());
      }
      Piece& piece = filled_.front();
      const std::span<std::byte> to =
          cursor_.next(std::min<size_t>(bytes_max, piece.bytes - piece.emptied));
      const std::byte* const from = transport_.slab(piece.slab) + piece.emptied;
      if (const Status copied = transport_.copy(target_, to.data(), from, to.size()); !copied) {
        transport_.stream().fail(copied.error());
        return Progress::kBlocked;
      }
      digest_.update(target_.device ? std::span(from, to.size()) : to);
      cursor_.advance(to.size());
      piece.emptied += static_cast<uint32_t>(to.size());
      bytes_max -= to.size();
      if (cursor_.bytes_left() == 0) {
        rows_arrived_ = ranges_.front().first + ranges_.front().count;
        ranges_.pop_front();
      }
      if (piece.emptied == piece.bytes) {
        transport_.step(NcclLink::Emptied{piece.slab});
        filled_.pop_front();
      }
    }
    return Progress::kDone;
  }

  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return digest_.value(); }

 private:
  struct Piece {
    uint32_t slab = 0;
    uint32_t bytes = 0;
    uint32_t emptied = 0;
  };

  NcclTransport& transport_;
  TransferId id_;
  const Region& target_;
  std::span<const Window> windows_;
  std::deque<RowRange> ranges_;   // Announced, not yet complete. Bounded by the rows granted.
  uint64_t bytes_announced_ = 0;  // Of those, not yet in a slab.
  std::deque<Piece> filled_;
  RowCursor cursor_;
  RowDigest digest_;
  uint32_t rows_arrived_ = 0;
};

NcclTransport::NcclTransport(LinkStream& stream, NcclLinks& links, Gpu* gpu, NcclLink::Side side)
    : stream_(stream), links_(links), gpu_(gpu), key_(links.add(side, *this)) {}

NcclTransport::~NcclTransport() { links_.remove(key_); }

Result<std::unique_ptr<RowSender>> NcclTransport::open_sender(const Grant& grant,
                                                              UniqueFd /*shared*/) {
  ++senders_;
  return std::unique_ptr<RowSender>(std::make_unique<NcclRowSender>(*this, grant.id));
}

std::unique_ptr<RowReceiver> NcclTransport::open_receiver(const Grant& grant,
                                                          const Region& target) {
  auto receiver = std::make_unique<NcclRowReceiver>(*this, grant.id, target);
  receivers_[grant.id] = receiver.get();
  step(NcclLink::Wanted{.wanted = true});
  return receiver;
}

void NcclTransport::receiver_ended(TransferId id) {
  receivers_.erase(id);
  if (receivers_.empty()) {
    step(NcclLink::Wanted{.wanted = false});
    links_.rested();
  }
}

void NcclTransport::sender_ended() {
  if (--senders_ == 0) {
    links_.rested();
  }
}

std::optional<uint32_t> NcclTransport::take_slab() {
  const std::optional<uint32_t> slab = links_.free_slab(key_);
  if (slab) {
    step(NcclLink::Taken{*slab});
  }
  return slab;
}

Status NcclTransport::copy(const Region& region, void* to, const void* from, size_t bytes) {
  if (!region.device) {
    std::memcpy(to, from, bytes);
    return ok();
  }
  const GpuCopy copy{.to = to, .from = from, .bytes = bytes};
  return gpu_->copy({&copy, 1});
}

bool NcclTransport::on_message(const LinkMessage& message) {
  if (const auto* offer = std::get_if<NcclOffer>(&message)) {
    step(*offer);
  } else if (const auto* posted = std::get_if<NcclPosted>(&message)) {
    step(*posted);
  } else if (const auto* slab = std::get_if<NcclSlab>(&message)) {
    step(*slab);
  } else if (const auto* leave = std::get_if<NcclLeave>(&message)) {
    step(*leave);
  } else {
    return false;
  }
  return true;
}

void NcclTransport::slab_is_filled(uint32_t slab, uint32_t bytes, TransferId transfer) {
  const auto receiver = receivers_.find(transfer);
  if (receiver == receivers_.end()) {
    return step(NcclLink::Emptied{slab});  // Cancelled meanwhile.
  }
  if (receiver->second->filled(slab, bytes)) {
    stream_.rows_came(transfer);
  } else {
    stream_.fail({ErrorCode::kCorrupt, "more KV rows came over NCCL than were announced"});
  }
}

void NcclTransport::link_failed(const Error& reason) {
  failed_ = true;
  stream_.fail(reason);
}

}  // namespace pdjob::kvtransfer
