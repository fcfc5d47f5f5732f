#include "kvtransfer/shm/shm_transport.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "kvtransfer/rows/row_digest.h"

namespace pdjob::kvtransfer {
namespace {

// Bytes of granted rows whose pages are mapped at the grant, when no push waits yet. Further pages
// are mapped during the push, so that a grant never delays other transfers for long.
constexpr uint64_t kTouchedAtGrantBytes = 32 * limits::kMiB;

void touch_first(SharedMapping& mapping, const Grant& grant) {
  uint64_t left = kTouchedAtGrantBytes;
  for (const GrantedWindow& window : grant.windows) {
    if (left == 0) {
      break;  // Touching zero bytes would still map the piece where the window begins.
    }
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
  // A push that was cut short may still have stores under way. They must finish before the receiver
  // is told that we have stopped.
  ~ShmRowSender() override { finish_copies(); }

  void start(const Region& source, RowRange range) override {
    source_ = RowCursor(source.windows, range);
    target_ = RowCursor(target_windows_, range);
    bytes_landed_ = 0;
    stream_.send(Rows{.id = id_, .first = range.first, .count = range.count});
  }

  Result<Progress> advance(size_t bytes_max) override {
    while (source_.bytes_left() > 0 && bytes_max > 0) {
      const std::span<std::byte> from = source_.next(bytes_max);
      std::byte* const to = target_.next(from.size()).data();
      mapping_->touch(static_cast<uint64_t>(to - mapping_->base()), from.size());
      digest_.update_and_copy(from, to);
      source_.advance(from.size());
      target_.advance(from.size());
      bytes_landed_ += from.size();
      bytes_max -= from.size();
    }
    finish_copies();
    stream_.send(Landed{.id = id_, .bytes = bytes_landed_});
    return source_.bytes_left() > 0 ? Progress::kOthersFirst : Progress::kDone;
  }

  uint64_t digest() const override { return digest_.value(); }

 private:
  LinkStream& stream_;
  TransferId id_;
  std::shared_ptr<SharedMapping> mapping_;
  std::vector<Window> target_windows_;
  RowCursor source_;
  RowCursor target_;
  uint64_t bytes_landed_ = 0;  // Bytes of the range under way.
  RowDigest digest_;
};

}  // namespace

class ShmTransport::Receiver final : public RowReceiver {
 public:
  Receiver(ShmTransport& transport, TransferId id, const Region& target)
      : transport_(transport), id_(id), windows_(target.windows) {
    transport_.receivers_[id_] = this;
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ~Receiver() override { transport_.receivers_.erase(id_); }

  // Announced ranges are consecutive, but each is hashed window by window. So they are kept apart.
  PayloadSink* announced(RowRange range) override {
    bytes_in_place_ = bytes_announced_;  // A new range means that the one before is complete.
    bytes_announced_ += bytes_per_row(windows_) * range.count;
    bytes_before_last_ = bytes_in_place_;
    ranges_.push_back(range);
    return nullptr;
  }

  // Limits the report to the announced bytes. If the sender is wrong, its next ROWS or COMMIT will
  // show it, and only this transfer fails.
  void landed(uint64_t bytes) {
    bytes_in_place_ = bytes_before_last_ + std::min(bytes, bytes_announced_ - bytes_before_last_);
  }

  Progress advance(size_t bytes_max) override {
    while (bytes_hashed_ < bytes_in_place_) {
      if (bytes_max == 0) {
        return Progress::kOthersFirst;
      }
      if (cursor_.bytes_left() == 0) {
        cursor_ = RowCursor(windows_, ranges_.front());
      }
      const size_t bytes =
          std::min({uint64_t{bytes_max}, cursor_.bytes_left(), bytes_in_place_ - bytes_hashed_});
      hash_and_advance(digest_, cursor_, bytes);
      bytes_max -= bytes;
      bytes_hashed_ += bytes;
      if (cursor_.bytes_left() == 0) {
        rows_arrived_ = ranges_.front().first + ranges_.front().count;
        ranges_.pop_front();
      }
    }
    return Progress::kDone;
  }

  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return digest_.value(); }

 private:
  ShmTransport& transport_;
  const TransferId id_;
  std::span<const Window> windows_;
  std::deque<RowRange> ranges_;  // Ranges not completely hashed. Bounded by the rows granted.
  RowCursor cursor_;             // In the first of `ranges_`, once it is begun.
  RowDigest digest_;
  uint32_t rows_arrived_ = 0;
  // Over all ranges:
  uint64_t bytes_announced_ = 0;
  uint64_t bytes_before_last_ = 0;  // Without the range last announced.
  uint64_t bytes_in_place_ = 0;
  uint64_t bytes_hashed_ = 0;
};

Result<std::unique_ptr<RowSender>> ShmTransport::open_sender(const Grant& grant, Fd shared) {
  if (!shared.valid()) {
    return Error{ErrorCode::kInvalidArgument, "a grant came without its memory"};
  }
  PDJOB_TRY(std::shared_ptr<SharedMapping> mapping, mappings_.map(shared, grant.shared_bytes));
  PDJOB_TRY(std::vector<Window> windows, granted_windows(grant, mapping->base()));
  touch_first(*mapping, grant);
  return std::unique_ptr<RowSender>(
      std::make_unique<ShmRowSender>(stream_, grant.id, std::move(mapping), std::move(windows)));
}

std::unique_ptr<RowReceiver> ShmTransport::open_receiver(const Grant& grant, const Region& target) {
  return std::make_unique<Receiver>(*this, grant.id, target);
}

bool ShmTransport::on_message(const LinkMessage& message) {
  const auto* landed = std::get_if<Landed>(&message);
  if (landed == nullptr) {
    return false;
  }
  // An unknown transfer was cancelled meanwhile.
  if (const auto receiver = receivers_.find(landed->id); receiver != receivers_.end()) {
    receiver->second->landed(landed->bytes);
    stream_.rows_came(landed->id);
  }
  return true;
}

}  // namespace pdjob::kvtransfer
