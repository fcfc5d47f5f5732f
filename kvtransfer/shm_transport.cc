#include "kvtransfer/shm_transport.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "kvtransfer/row_digest.h"

namespace pdjob::kvtransfer {
namespace {

// Of the granted rows, when they are granted: nobody waits for them yet. The pages of more rows are
// mapped as they are pushed, so that no grant holds up other transfers for long.
constexpr uint64_t kTouchedAtGrantBytes = 32 * limits::kMiB;

void touch_first(SharedMapping& mapping, const Grant& grant) {
  uint64_t left = kTouchedAtGrantBytes;
  for (const GrantedWindow& window : grant.windows) {
    const uint64_t bytes = std::min(left, uint64_t{window.row_bytes} * grant.rows);
    left -= std::min(left, mapping.touch(window.shared_offset, bytes));
  }
}

class ShmRowSender final : public RowSender {
 public:
  ShmRowSender(LinkStream& stream, TransferId id, std::shared_ptr<SharedMapping> mapping,
               std::vector<Window> target)
      : stream_(stream),
        id_(id),
        mapping_(std::move(mapping)),
        target_windows_(std::move(target)) {}
  ShmRowSender(const ShmRowSender&) = delete;
  ShmRowSender& operator=(const ShmRowSender&) = delete;
  // A push that was cut short has stores under way, too: none may land after the receiver was told
  // that we have stopped.
  ~ShmRowSender() override { finish_copies(); }

  void start(const Region& source, RowRange range) override {
    range_ = range;
    source_ = RowCursor(source.windows, range);
    target_ = RowCursor(target_windows_, range);
  }

  Result<Progress> advance(size_t bytes_max) override {
    while (source_.bytes_left() > 0) {
      if (bytes_max == 0) {
        return Progress::kOthersFirst;
      }
      const std::span<std::byte> from = source_.next(bytes_max);
      std::byte* const to = target_.next(from.size()).data();
      mapping_->touch(static_cast<uint64_t>(to - mapping_->base()), from.size());
      digest_.update_and_copy(from, to);
      source_.advance(from.size());
      target_.advance(from.size());
      bytes_max -= from.size();
    }
    finish_copies();
    stream_.send(Rows{.id = id_, .first = range_.first, .count = range_.count});
    return Progress::kDone;
  }

  uint64_t digest() const override { return digest_.value(); }

 private:
  LinkStream& stream_;
  TransferId id_;
  std::shared_ptr<SharedMapping> mapping_;
  std::vector<Window> target_windows_;
  RowRange range_;
  RowCursor source_;
  RowCursor target_;
  RowDigest digest_;
};

class ShmRowReceiver final : public RowReceiver {
 public:
  explicit ShmRowReceiver(const Region& target) : windows_(target.windows) {}

  // Announced ranges follow each other, but each is hashed window by window: they must be kept
  // apart.
  PayloadSink* announced(RowRange range) override {
    ranges_.push_back(range);
    return nullptr;
  }

  Progress advance(size_t bytes_max) override {
    while (!ranges_.empty()) {
      if (!hashing_) {
        cursor_ = RowCursor(windows_, ranges_.front());
        hashing_ = true;
      }
      const size_t bytes = std::min<uint64_t>(bytes_max, cursor_.bytes_left());
      hash_and_advance(digest_, cursor_, bytes);
      bytes_max -= bytes;
      if (cursor_.bytes_left() > 0) {
        return Progress::kOthersFirst;
      }
      rows_arrived_ = ranges_.front().first + ranges_.front().count;
      ranges_.pop_front();
      hashing_ = false;
    }
    return Progress::kDone;
  }

  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return digest_.value(); }

 private:
  std::span<const Window> windows_;
  std::deque<RowRange> ranges_;  // Bounded by the rows granted.
  bool hashing_ = false;
  RowCursor cursor_;
  RowDigest digest_;
  uint32_t rows_arrived_ = 0;
};

}  // namespace

Result<std::unique_ptr<RowSender>> ShmTransport::open_sender(const Grant& grant, UniqueFd shared) {
  if (!shared.valid()) {
    return Error{ErrorCode::kInvalidArgument, "a grant came without its memory"};
  }
  PDJOB_TRY(std::shared_ptr<SharedMapping> mapping, mappings_.map(shared, grant.shared_bytes));
  PDJOB_TRY(std::vector<Window> windows, granted_windows(grant, mapping->base()));
  touch_first(*mapping, grant);
  return std::unique_ptr<RowSender>(
      std::make_unique<ShmRowSender>(stream_, grant.id, std::move(mapping), std::move(windows)));
}

std::unique_ptr<RowReceiver> ShmTransport::open_receiver(const Grant& /*grant*/,
                                                         const Region& target) {
  return std::make_unique<ShmRowReceiver>(target);
}

}  // namespace pdjob::kvtransfer
