#include "kvtransfer/nccl/nccl_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <variant>

#include "common/limits.h"
#include "gpu/gpu.h"
#include "kvtransfer/link/gpu_arrivals.h"
#include "kvtransfer/rows/row_sum.h"

namespace pdjob::kvtransfer {

// Rows in host memory are summed as they pass. Rows in GPU memory are summed by the GPU, range by
// range, while they move.
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
    transport_.stream().wake();  // Other senders may wait behind us.
  }

  // Making a communicator may take longer than the timeout of a range.
  bool can_start() const override { return transport_.has_free_slab(); }

  void start(const Region& source, RowRange range) override {
    source_ = &source;
    cursor_ = RowCursor(source.windows, range);
    if (source.device) {
      begun_ = begin_sum(range);
    } else {
      host_sum_.begin(source.windows, range);
    }
    transport_.stream().send(Rows{.id = id_, .first = range.first, .count = range.count});
  }

  Result<Progress> advance(size_t bytes_max) override {
    PDJOB_TRY_STATUS(begun_);
    while (cursor_.bytes_left() > 0) {
      if (transport_.failed() || (!slab_ && !take_slab())) {
        return Progress::kBlocked;
      }
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      const std::span<std::byte> piece =
          cursor_.next(std::min(bytes_max, limits::kNcclSlabBytes - filled_));
      pack(piece);
      cursor_.advance(piece.size());
      bytes_max -= piece.size();
      if (filled_ == limits::kNcclSlabBytes || cursor_.bytes_left() == 0) {
        hand_over();
      }
    }
    return source_->device ? finish_sum() : Progress::kDone;
  }

  uint64_t digest() const override { return gpu_sum_ + host_sum_.value(); }

 private:
  bool take_slab() {
    slab_ = transport_.take_slab();
    filled_ = 0;
    return slab_.has_value();
  }

  void pack(std::span<const std::byte> piece) {
    const NcclSlabMemory slab = transport_.slab(*slab_);
    if (source_->device) {
      copies_.push_back({slab.device + filled_, piece.data(), piece.size()});
    } else {
      std::memcpy(slab.host + filled_, piece.data(), piece.size());
      host_sum_.update({slab.host + filled_, piece.size()});
    }
    filled_ += piece.size();
  }

  void hand_over() {
    if (!source_->device) {
      const NcclSlabMemory slab = transport_.slab(*slab_);
      copies_ = {{slab.device, slab.host, filled_}};
    }
    transport_.pack({.slab = *std::exchange(slab_, std::nullopt),
                     .bytes = static_cast<uint32_t>(filled_),
                     .transfer = id_},
                    std::exchange(copies_, {}));
  }

  Status begin_sum(RowRange range) {
    PDJOB_TRY(queue_, GpuQueue::open(transport_.gpu()));
    return queue_->sum_rows(gpu_windows(*source_), range.first, range.count);
  }

  Result<Progress> finish_sum() {
    PDJOB_TRY(const bool done, queue_->idle());
    if (!done) {
      return Progress::kOthersFirst;
    }
    gpu_sum_ += queue_->sum();
    queue_.reset();
    return Progress::kDone;
  }

  NcclTransport& transport_;
  TransferId id_;
  const Region* source_ = nullptr;
  RowCursor cursor_;
  std::optional<uint32_t> slab_;  // The slab being filled.
  size_t filled_ = 0;
  std::vector<GpuCopy> copies_;  // Copies that will fill it.
  RowSum host_sum_;
  Status begun_ = ok();
  std::unique_ptr<GpuQueue> queue_;  // Sums the range under way.
  uint64_t gpu_sum_ = 0;
};

class NcclRowReceiver : public RowReceiver {
 public:
  NcclRowReceiver(NcclTransport& transport, TransferId id, const Region& target)
      : transport_(transport), id_(id), windows_(target.windows) {}
  NcclRowReceiver(const NcclRowReceiver&) = delete;
  NcclRowReceiver& operator=(const NcclRowReceiver&) = delete;
  ~NcclRowReceiver() override { transport_.receiver_ended(id_); }

  PayloadSink* announced(RowRange range) override {
    ranges_.push_back(range);
    bytes_announced_ += bytes_of(range);
    return nullptr;
  }
  TransferId id() const { return id_; }
  // False: more bytes than were announced.
  bool expect(uint32_t bytes) {
    const bool announced = bytes <= bytes_announced_;
    bytes_announced_ -= announced ? bytes : 0;
    return announced;
  }
  // Returns the copies to make when our next `bytes` have come to the slab. Requires: expect().
  virtual std::vector<GpuCopy> copies_from(const NcclSlabMemory& slab, uint32_t bytes) = 0;
  // The bytes have come and are copied.
  virtual void filled(uint32_t slab, uint32_t bytes) = 0;

 protected:
  NcclTransport& transport() const { return transport_; }
  std::span<const Window> windows() const { return windows_; }
  uint64_t bytes_of(RowRange range) const { return bytes_per_row(windows_) * range.count; }
  // Ranges announced, but not yet in place.
  std::deque<RowRange>& ranges() { return ranges_; }

 private:
  NcclTransport& transport_;
  const TransferId id_;
  const std::span<const Window> windows_;
  std::deque<RowRange> ranges_;   // Bounded by the rows granted.
  uint64_t bytes_announced_ = 0;  // Announced bytes that no slab is expected to bring yet.
};

// Unpacks the slabs' pinned twins to rows in the host's memory.
class NcclHostReceiver final : public NcclRowReceiver {
 public:
  using NcclRowReceiver::NcclRowReceiver;
  NcclHostReceiver(const NcclHostReceiver&) = delete;
  NcclHostReceiver& operator=(const NcclHostReceiver&) = delete;
  ~NcclHostReceiver() override {
    for (const Piece& piece : filled_) {
      transport().step(NcclLink::Emptied{piece.slab});
    }
  }

  std::vector<GpuCopy> copies_from(const NcclSlabMemory& slab, uint32_t bytes) override {
    return {{slab.host, slab.device, bytes}};
  }
  void filled(uint32_t slab, uint32_t bytes) override {
    filled_.push_back({.slab = slab, .bytes = bytes});
  }

  Progress advance(size_t bytes_max) override {
    while (!filled_.empty() && !transport().failed()) {
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      if (cursor_.bytes_left() == 0) {
        cursor_ = RowCursor(windows(), ranges().front());
        sum_.begin(windows(), ranges().front());
      }
      Piece& piece = filled_.front();
      const std::span<std::byte> to =
          cursor_.next(std::min<size_t>(bytes_max, piece.bytes - piece.emptied));
      std::memcpy(to.data(), transport().slab(piece.slab).host + piece.emptied, to.size());
      sum_.update(to);
      cursor_.advance(to.size());
      piece.emptied += static_cast<uint32_t>(to.size());
      bytes_max -= to.size();
      if (cursor_.bytes_left() == 0) {
        rows_arrived_ = ranges().front().first + ranges().front().count;
        ranges().pop_front();
      }
      if (piece.emptied == piece.bytes) {
        transport().step(NcclLink::Emptied{piece.slab});
        filled_.pop_front();
      }
    }
    return Progress::kDone;
  }

  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return sum_.value(); }

 private:
  struct Piece {
    uint32_t slab = 0;
    uint32_t bytes = 0;
    uint32_t emptied = 0;
  };

  std::deque<Piece> filled_;
  RowCursor cursor_;
  RowSum sum_;
  uint32_t rows_arrived_ = 0;
};

// Has the GPU unpack slabs to rows in its memory, and sum the rows that are in place.
class NcclGpuReceiver final : public NcclRowReceiver {
 public:
  NcclGpuReceiver(NcclTransport& transport, TransferId id, const Region& target)
      : NcclRowReceiver(transport, id, target),
        arrivals_(transport.stream(), transport.gpu(), target) {}

  PayloadSink* announced(RowRange range) override {
    unplaced_.push_back(range);
    return NcclRowReceiver::announced(range);
  }

  std::vector<GpuCopy> copies_from(const NcclSlabMemory& slab, uint32_t bytes) override {
    std::vector<GpuCopy> copies;
    for (uint32_t placed = 0; placed < bytes;) {
      if (cursor_.bytes_left() == 0) {
        cursor_ = RowCursor(windows(), unplaced_.front());
        unplaced_.pop_front();
      }
      const std::span<std::byte> to = cursor_.next(bytes - placed);
      copies.push_back({to.data(), slab.device + placed, to.size()});
      cursor_.advance(to.size());
      placed += static_cast<uint32_t>(to.size());
    }
    return copies;
  }

  void filled(uint32_t slab, uint32_t bytes) override {
    bytes_in_place_ += bytes;
    while (!ranges().empty() && bytes_in_place_ >= bytes_of(ranges().front())) {
      bytes_in_place_ -= bytes_of(ranges().front());
      arrivals_.in_place(ranges().front().first + ranges().front().count);
      ranges().pop_front();
    }
    transport().step(NcclLink::Emptied{slab});
  }

  Progress advance(size_t bytes_max) override { return arrivals_.advance(bytes_max); }
  uint32_t rows_arrived() const override { return arrivals_.rows_arrived(); }
  uint64_t digest() const override { return arrivals_.digest(); }

 private:
  std::deque<RowRange> unplaced_;  // Announced ranges without any copy yet.
  RowCursor cursor_;               // In the range that copies fill now.
  uint64_t bytes_in_place_ = 0;    // Of the first range in ranges().
  GpuArrivals arrivals_;
};

NcclTransport::NcclTransport(LinkStream& stream, NcclLinks& links, Gpu* gpu, NcclLink::Side side)
    : stream_(stream), links_(links), gpu_(gpu), key_(links.add(side, *this)) {}

NcclTransport::~NcclTransport() { links_.remove(key_); }

Result<std::unique_ptr<RowSender>> NcclTransport::open_sender(const Grant& grant, Fd /*shared*/) {
  ++senders_;
  return std::unique_ptr<RowSender>(std::make_unique<NcclRowSender>(*this, grant.id));
}

std::unique_ptr<RowReceiver> NcclTransport::open_receiver(const Grant& grant,
                                                          const Region& target) {
  std::unique_ptr<NcclRowReceiver> receiver;
  if (target.device) {
    receiver = std::make_unique<NcclGpuReceiver>(*this, grant.id, target);
  } else {
    receiver = std::make_unique<NcclHostReceiver>(*this, grant.id, target);
  }
  receivers_[grant.id] = receiver.get();
  step(NcclLink::Wanted{.wanted = true});
  return receiver;
}

void NcclTransport::receiver_ended(TransferId id) {
  const auto receiver = receivers_.extract(id);
  std::erase_if(receiver_of_slab_,
                [&](const auto& entry) { return entry.second == receiver.mapped(); });
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

std::vector<GpuCopy> NcclTransport::slab_is_expected(uint32_t slab, uint32_t bytes,
                                                     TransferId transfer) {
  const auto receiver = receivers_.find(transfer);
  if (receiver == receivers_.end()) {
    return {};  // The transfer was cancelled meanwhile.
  }
  if (!receiver->second->expect(bytes)) {
    stream_.fail({ErrorCode::kCorrupt, "more KV rows came over NCCL than were announced"});
    return {};
  }
  receiver_of_slab_[slab] = receiver->second;
  return receiver->second->copies_from(this->slab(slab), bytes);
}

void NcclTransport::slab_is_filled(uint32_t slab, uint32_t bytes) {
  const auto receiver = receiver_of_slab_.extract(slab);
  if (!receiver) {
    return step(NcclLink::Emptied{slab});
  }
  receiver.mapped()->filled(slab, bytes);
  stream_.rows_came(receiver.mapped()->id());
}

void NcclTransport::link_failed(const Error& reason) {
  failed_ = true;
  stream_.fail(reason);
}

}  // namespace pdjob::kvtransfer
