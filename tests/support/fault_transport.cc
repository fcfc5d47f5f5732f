#include "tests/support/fault_transport.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "common/check.h"
#include "gpu/gpu.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/link/gpu_arrivals.h"
#include "kvtransfer/open_transport.h"
#include "kvtransfer/rows/row_digest.h"
#include "kvtransfer/rows/row_sum.h"

namespace pdjob::kvtransfer {
namespace {

constexpr int kDelayTurns = 20;

// How the announcement of a range differs from what moved.
struct Distortion {
  bool dropped = false;
  uint32_t more_rows = 0;
  uint64_t more_bytes = 0;
  uint64_t more_landed = 0;
};

// The link's stream, with false ROWS and LANDED. Loop-bound.
class FaultStream final : public LinkStream {
 public:
  explicit FaultStream(LinkStream& stream) : stream_(stream) {}

  void distort(const Distortion& distortion) { distortion_ = distortion; }

  void send(LinkMessage message) override {
    if (auto* rows = std::get_if<Rows>(&message)) {
      if (distortion_.dropped) {
        return;
      }
      rows->count += distortion_.more_rows;
      rows->payload_bytes += distortion_.more_bytes;
    } else if (auto* landed = std::get_if<Landed>(&message)) {
      landed->bytes += distortion_.more_landed;
    }
    stream_.send(std::move(message));
  }
  void begin_payload(uint64_t bytes) override { stream_.begin_payload(bytes); }
  size_t write_payload(std::span<const iovec> pieces) override {
    return stream_.write_payload(pieces);
  }
  void wake() override { stream_.wake(); }
  void rows_came(TransferId id) override { stream_.rows_came(id); }
  void fail(Error reason) override { stream_.fail(std::move(reason)); }

 private:
  LinkStream& stream_;
  Distortion distortion_;  // Applies to the call under way.
};

// A sender that believes it moved what it was told to: its digest is always that of the source.
class FaultRowSender final : public RowSender {
 public:
  FaultRowSender(FaultStream& stream, Transport& transport, Gpu* gpu, TransferId id, FaultPlan plan,
                 std::unique_ptr<RowSender> sender)
      : stream_(stream),
        inner_(transport),
        transport_(transport.capabilities()),
        gpu_(gpu),
        id_(id),
        plan_(plan),
        sender_(std::move(sender)) {}
  FaultRowSender(const FaultRowSender&) = delete;
  FaultRowSender& operator=(const FaultRowSender&) = delete;
  // Keeps the damaged copy alive as long as it is read.
  ~FaultRowSender() override {
    sender_.reset();
    inner_.when_released(id_, [damaged = std::make_shared<Copy>(std::move(damaged_))] {});
  }

  bool can_start() const override { return sender_->can_start(); }

  void start(const Region& source, RowRange range) override {
    source_ = &source;
    range_ = range;
    faulty_ = ranges_started_++ == plan_.range;
    hash();
    turns_left_ = suffers(FaultKind::kDelay) ? kDelayTurns : 0;
    if (turns_left_ == 0) {
      start_range();
    }
  }

  Result<Progress> advance(size_t bytes_max) override {
    if (turns_left_ > 0) {
      if (--turns_left_ == 0) {
        start_range();
      }
      return Progress::kMore;
    }
    if (suffers(FaultKind::kStall) || suffers(FaultKind::kFail)) {
      return break_off(bytes_max);
    }
    PDJOB_TRY(const Progress progress, advance_range(bytes_max));
    if (progress == Progress::kDone && suffers(FaultKind::kDuplicate) && !repeated_) {
      repeated_ = true;
      start_range();
      return Progress::kMore;
    }
    return progress;
  }

  uint64_t digest() const override {
    return transport_.sums_rows ? gpu_sum_ + host_sum_.value() : digest_.value();
  }

 private:
  // Waits for the GPU to sum its rows: tests may block.
  void hash() {
    if (transport_.sums_rows && source_->device) {
      const auto queue = *GpuQueue::open(*gpu_);
      PDJOB_CHECK(queue->sum_rows(gpu_windows(*source_), range_.first, range_.count));
      PDJOB_CHECK(queue->wait());
      gpu_sum_ += queue->sum();
      return;
    }
    const Copy readable = copy();
    RowCursor rows(readable.region.windows, range_);
    if (transport_.sums_rows) {
      host_sum_.begin(readable.region.windows, range_);
      while (rows.bytes_left() > 0) {
        const std::span<std::byte> piece = rows.next(rows.bytes_left());
        host_sum_.update(piece);
        rows.advance(piece.size());
      }
      return;
    }
    hash_and_advance(digest_, rows, rows.bytes_left());
  }

  bool suffers(FaultKind kind) const { return faulty_ && plan_.kind == kind; }

  Distortion distortion() const {
    if (suffers(FaultKind::kTruncate)) {
      const uint64_t row = bytes_per_row(source_->windows);
      return {.more_rows = 1, .more_bytes = transport_.rows_on_link ? row : 0, .more_landed = row};
    }
    return {.dropped = suffers(FaultKind::kDropAnnouncement)};
  }

  void start_range() {
    RowRange moved = range_;
    moved.count -= suffers(FaultKind::kTruncate) ? 1 : 0;
    stream_.distort(distortion());
    sender_->start(suffers(FaultKind::kFlipBit) ? damage() : *source_, moved);
    stream_.distort({});
  }

  Result<Progress> advance_range(size_t bytes_max) {
    stream_.distort(distortion());
    Result<Progress> progress = sender_->advance(bytes_max);
    stream_.distort({});
    return progress;
  }

  Result<Progress> break_off(size_t bytes_max) {
    if (!std::exchange(broken_off_, true)) {
      const uint64_t half = bytes_per_row(source_->windows) * range_.count / 2;
      PDJOB_TRY([[maybe_unused]] const Progress progress,
                sender_->advance(std::min<uint64_t>(half, bytes_max)));
    }
    if (plan_.kind == FaultKind::kFail) {
      return Error{ErrorCode::kInternal, "the transport broke"};
    }
    return Progress::kBlocked;
  }

  struct Copy {
    Region region;
    std::vector<std::vector<std::byte>> windows;
    GpuMemory memory;
  };

  // Returns a copy of the source's rows up to the range's end, in the host's memory.
  Copy copy() const {
    Copy made{.region = *source_};
    made.region.device.reset();
    for (Window& window : made.region.windows) {
      std::vector<std::byte>& bytes =
          made.windows.emplace_back(size_t{window.row_bytes} * (range_.first + range_.count));
      move_bytes(bytes.data(), window.base, bytes.size());
      window.base = bytes.data();
    }
    return made;
  }

  // Returns a copy of the source in the same kind of memory, in which one bit of the range differs.
  const Region& damage() {
    damaged_ = copy();
    RowCursor rows(damaged_.region.windows, range_);
    const uint64_t bit = plan_.bit % (8 * rows.bytes_left());
    rows.advance(bit / 8);
    rows.next(1)[0] ^= std::byte{1} << (bit % 8);
    if (source_->device) {
      move_to_gpu(damaged_);
    }
    return damaged_.region;
  }

  void move_to_gpu(Copy& copy) {
    uint64_t bytes = 0;
    for (const auto& window : copy.windows) {
      bytes += window.size();
    }
    copy.memory = *gpu_->allocate(bytes);
    copy.region.device = source_->device;
    std::byte* to = copy.memory.base();
    for (Window& window : copy.region.windows) {
      const size_t size = size_t{window.row_bytes} * (range_.first + range_.count);
      move_bytes(to, window.base, size);
      window.base = to;
      to += size;
    }
  }

  void move_bytes(std::byte* to, const std::byte* from, size_t bytes) const {
    if (source_->device) {
      const GpuCopy copy{.to = to, .from = from, .bytes = bytes};
      PDJOB_CHECK(gpu_->copy({&copy, 1}));
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  FaultStream& stream_;
  Transport& inner_;
  const TransportCapabilities transport_;
  Gpu* const gpu_;
  const TransferId id_;
  const FaultPlan plan_;
  Copy damaged_;
  std::unique_ptr<RowSender> sender_;
  const Region* source_ = nullptr;
  RowRange range_;
  RowDigest digest_;
  RowSum host_sum_;
  uint64_t gpu_sum_ = 0;
  uint32_t ranges_started_ = 0;
  bool faulty_ = false;  // True: the range under way is the plan's.
  int turns_left_ = 0;
  bool repeated_ = false;
  bool broken_off_ = false;
};

// From the plan's range on, nothing counts as arrived.
class FaultRowReceiver final : public RowReceiver {
 public:
  FaultRowReceiver(FaultPlan plan, std::unique_ptr<RowReceiver> receiver)
      : plan_(plan), receiver_(std::move(receiver)) {}

  PayloadSink* announced(RowRange range) override {
    if (ranges_announced_++ == plan_.range) {
      rows_max_ = range.first;
    }
    return receiver_->announced(range);
  }
  Progress advance(size_t bytes_max) override { return receiver_->advance(bytes_max); }
  uint32_t rows_arrived() const override { return std::min(receiver_->rows_arrived(), rows_max_); }
  uint64_t digest() const override { return receiver_->digest(); }

 private:
  const FaultPlan plan_;
  std::unique_ptr<RowReceiver> receiver_;
  uint32_t ranges_announced_ = 0;
  uint32_t rows_max_ = UINT32_MAX;
};

class FaultTransport final : public Transport {
 public:
  FaultTransport(TransportKind kind, LinkStream& stream, TransportSide side,
                 const TransportDevices& devices, FaultPlans plans)
      : stream_(stream),
        gpu_(devices.gpu),
        transport_(open_transport(kind, stream_, side, devices)),
        plans_(std::move(plans)) {}

  TransportCapabilities capabilities() const override { return transport_->capabilities(); }

  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override {
    PDJOB_TRY(std::unique_ptr<RowSender> sender, transport_->open_sender(grant, std::move(shared)));
    return std::unique_ptr<RowSender>(std::make_unique<FaultRowSender>(
        stream_, *transport_, gpu_, grant.id, plans_(grant.id), std::move(sender)));
  }

  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override {
    std::unique_ptr<RowReceiver> receiver = transport_->open_receiver(grant, target);
    const FaultPlan plan = plans_(grant.id);
    if (plan.kind != FaultKind::kLoseArrival) {
      return receiver;
    }
    return std::make_unique<FaultRowReceiver>(plan, std::move(receiver));
  }

  bool on_message(const LinkMessage& message) override { return transport_->on_message(message); }
  void when_released(TransferId id, const std::function<void()>& then) override {
    transport_->when_released(id, then);
  }

 private:
  FaultStream stream_;
  Gpu* const gpu_;
  std::unique_ptr<Transport> transport_;
  const FaultPlans plans_;
};

}  // namespace

TransportOpener with_faults(FaultPlans plans) {
  return [plans = std::move(plans)](TransportKind kind, LinkStream& stream, TransportSide side,
                                    const TransportDevices& devices) {
    return std::make_unique<FaultTransport>(kind, stream, side, devices, plans);
  };
}

}  // namespace pdjob::kvtransfer
