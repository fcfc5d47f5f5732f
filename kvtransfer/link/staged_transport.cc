#include "kvtransfer/link/staged_transport.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "common/check.h"

namespace pdjob::kvtransfer {
namespace {

// The rows of one range of a region, in pinned memory of the host.
class Stage {
 public:
  Stage(Gpu& gpu, const Region& region) : gpu_(gpu), region_(region), staged_(region) {
    staged_.device.reset();
  }

  // Returns a region that holds only the rows of `range`.
  Result<const Region*> place(RowRange range) {
    const uint64_t bytes = bytes_per_row(region_.windows) * range.count;
    if (memory_.bytes() < bytes) {
      PDJOB_TRY(memory_, gpu_.pin(bytes));
    }
    copies_.clear();
    std::byte* here = memory_.base();
    for (size_t i = 0; i < region_.windows.size(); ++i) {
      const Window& window = region_.windows[i];
      const uint64_t before = uint64_t{window.row_bytes} * range.first;
      const uint64_t in_window = uint64_t{window.row_bytes} * range.count;
      // The address of row 0, which is not in memory here; it is only a base to count from.
      const auto row_0 = reinterpret_cast<uintptr_t>(here) - before;
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      staged_.windows[i].base = reinterpret_cast<std::byte*>(row_0);
      copies_.push_back({.to = here, .from = window.base + before, .bytes = in_window});
      here += in_window;
    }
    return &staged_;
  }
  const Region& region() const { return staged_; }

  Status load() { return gpu_.copy(copies_); }
  Status store() {
    std::vector<GpuCopy> back;
    for (const GpuCopy& copy : copies_) {
      back.push_back({.to = const_cast<void*>(copy.from), .from = copy.to, .bytes = copy.bytes});
    }
    return gpu_.copy(back);
  }

 private:
  Gpu& gpu_;
  const Region& region_;
  Region staged_;
  PinnedMemory memory_;
  std::vector<GpuCopy> copies_;  // From the region to the pinned memory.
};

class StagedRowSender final : public RowSender {
 public:
  StagedRowSender(Gpu& gpu, std::unique_ptr<RowSender> sender)
      : gpu_(gpu), sender_(std::move(sender)) {}

  void start(const Region& source, RowRange range) override {
    if (!source.device) {
      return sender_->start(source, range);
    }
    if (!stage_ || source_ != &source) {
      stage_.emplace(gpu_, source);
      source_ = &source;
    }
    const Result<const Region*> staged = stage_->place(range);
    loaded_ = staged ? stage_->load() : Status(staged.error());
    if (loaded_) {
      sender_->start(**staged, range);
    }
  }

  Result<Progress> advance(size_t bytes_max) override {
    PDJOB_TRY_STATUS(loaded_);
    return sender_->advance(bytes_max);
  }

  uint64_t digest() const override { return sender_->digest(); }

 private:
  Gpu& gpu_;
  const Region* source_ = nullptr;
  Status loaded_ = ok();
  std::optional<Stage> stage_;
  const std::unique_ptr<RowSender> sender_;  // Last, because it uses the stage.
};

class StagedRowReceiver final : public RowReceiver, public PayloadSink {
 public:
  StagedRowReceiver(Transport& transport, LinkStream& stream, Gpu& gpu, const Grant& grant,
                    const Region& target)
      : stream_(stream),
        stage_(gpu, target),
        receiver_(transport.open_receiver(grant, stage_.region())) {}

  PayloadSink* announced(RowRange range) override {
    if (const auto placed = stage_.place(range); !placed) {
      stream_.fail(placed.error());
      return nullptr;
    }
    rows_announced_ = range.first + range.count;
    sink_ = receiver_->announced(range);
    PDJOB_CHECK(sink_ != nullptr);
    return this;
  }
  Progress advance(size_t bytes_max) override { return receiver_->advance(bytes_max); }
  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return receiver_->digest(); }

  size_t next_pieces(std::span<iovec> pieces, size_t bytes_max) override {
    return sink_->next_pieces(pieces, bytes_max);
  }
  void filled(size_t bytes) override {
    sink_->filled(bytes);
    if (receiver_->rows_arrived() < rows_announced_) {
      return;
    }
    if (const Status stored = stage_.store(); !stored) {
      return stream_.fail(stored.error());
    }
    rows_arrived_ = rows_announced_;
  }

 private:
  LinkStream& stream_;
  Stage stage_;
  const std::unique_ptr<RowReceiver> receiver_;
  PayloadSink* sink_ = nullptr;
  uint32_t rows_announced_ = 0;
  uint32_t rows_arrived_ = 0;
};

}  // namespace

Result<std::unique_ptr<RowSender>> StagedTransport::open_sender(const Grant& grant, Fd shared) {
  PDJOB_TRY(std::unique_ptr<RowSender> sender, transport_->open_sender(grant, std::move(shared)));
  return std::unique_ptr<RowSender>(std::make_unique<StagedRowSender>(gpu_, std::move(sender)));
}

std::unique_ptr<RowReceiver> StagedTransport::open_receiver(const Grant& grant,
                                                            const Region& target) {
  if (!target.device) {
    return transport_->open_receiver(grant, target);
  }
  PDJOB_CHECK(capabilities().rows_on_link);
  return std::make_unique<StagedRowReceiver>(*transport_, stream_, gpu_, grant, target);
}

}  // namespace pdjob::kvtransfer
