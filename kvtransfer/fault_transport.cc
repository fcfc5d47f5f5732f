#include "kvtransfer/fault_transport.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kvtransfer/row_digest.h"

namespace pdjob::kvtransfer {
namespace {

constexpr int kDelayTurns = 20;

// What is said of a range is not what was moved.
struct Distortion {
  bool dropped = false;
  uint32_t more_rows = 0;
  uint64_t more_bytes = 0;
};

// The link's stream, with lies in its ROWS. Loop-bound.
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
  Distortion distortion_;  // Of the call under way.
};

// A sender that believes to have moved what it was told to: its digest is always that of the
// source.
class FaultRowSender final : public RowSender {
 public:
  FaultRowSender(FaultStream& stream, bool rows_on_link, FaultPlan plan,
                 std::unique_ptr<RowSender> sender)
      : stream_(stream), rows_on_link_(rows_on_link), plan_(plan), sender_(std::move(sender)) {}

  void start(const Region& source, RowRange range) override {
    source_ = &source;
    range_ = range;
    faulty_ = ranges_started_++ == plan_.range;
    RowCursor rows(source.windows, range);
    hash_and_advance(digest_, rows, rows.bytes_left());
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

  uint64_t digest() const override { return digest_.value(); }

 private:
  bool suffers(FaultKind kind) const { return faulty_ && plan_.kind == kind; }

  Distortion distortion() const {
    if (suffers(FaultKind::kTruncate)) {
      return {.more_rows = 1, .more_bytes = rows_on_link_ ? bytes_per_row(source_->windows) : 0};
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

  // A copy of the source in which one bit of the range differs.
  const Region& damage() {
    copies_.clear();
    damaged_ = *source_;
    for (Window& window : damaged_.windows) {
      const size_t bytes = size_t{window.row_bytes} * (range_.first + range_.count);
      copies_.emplace_back(window.base, window.base + bytes);
      window.base = copies_.back().data();
    }
    RowCursor rows(damaged_.windows, range_);
    const uint64_t bit = plan_.bit % (8 * rows.bytes_left());
    rows.advance(bit / 8);
    rows.next(1)[0] ^= std::byte{1} << (bit % 8);
    return damaged_;
  }

  FaultStream& stream_;
  const bool rows_on_link_;
  const FaultPlan plan_;
  std::unique_ptr<RowSender> sender_;
  const Region* source_ = nullptr;
  RowRange range_;
  RowDigest digest_;
  uint32_t ranges_started_ = 0;
  bool faulty_ = false;  // The range under way is the plan's.
  int turns_left_ = 0;
  bool repeated_ = false;
  bool broken_off_ = false;
  Region damaged_;
  std::vector<std::vector<std::byte>> copies_;
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
  FaultTransport(TransportKind kind, LinkStream& stream, TransportSide side, NcclLinks* nccl,
                 FaultPlans plans)
      : stream_(stream),
        transport_(open_transport(kind, stream_, side, nccl)),
        plans_(std::move(plans)) {}

  TransportCapabilities capabilities() const override { return transport_->capabilities(); }

  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) override {
    PDJOB_TRY(std::unique_ptr<RowSender> sender, transport_->open_sender(grant, std::move(shared)));
    return std::unique_ptr<RowSender>(std::make_unique<FaultRowSender>(
        stream_, capabilities().rows_on_link, plans_(grant.id), std::move(sender)));
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

 private:
  FaultStream stream_;
  std::unique_ptr<Transport> transport_;
  const FaultPlans plans_;
};

}  // namespace

TransportOpener with_faults(FaultPlans plans) {
  return [plans = std::move(plans)](TransportKind kind, LinkStream& stream, TransportSide side,
                                    NcclLinks* nccl) {
    return std::make_unique<FaultTransport>(kind, stream, side, nccl, plans);
  };
}

}  // namespace pdjob::kvtransfer
