#include "kvtransfer/shm_transport.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "kvtransfer/row_copy.h"
#include "kvtransfer/row_digest.h"

namespace pdjob::kvtransfer {
namespace {

// Hashed and then copied while it is still in the core's first cache.
constexpr size_t kPieceBytes = 4 * limits::kKiB;

class ShmRowSender final : public RowSender {
 public:
  ShmRowSender(LinkStream& stream, TransferId id, std::shared_ptr<const SharedMapping> mapping,
               std::vector<Window> target)
      : stream_(stream),
        id_(id),
        mapping_(std::move(mapping)),
        target_windows_(std::move(target)) {}

  void start(const Region& source, RowRange range) override {
    range_ = range;
    source_ = RowCursor(source.windows, range);
    target_ = RowCursor(target_windows_, range);
  }

  Result<Progress> advance(size_t bytes_max) override {
    while (source_.bytes_left() > 0) {
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      const std::span<std::byte> from = source_.next(std::min(bytes_max, kPieceBytes));
      digest_.update(from);
      copy_rows(target_.next(from.size()).data(), from.data(), from.size());
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
  std::shared_ptr<const SharedMapping> mapping_;
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
        return Progress::kMore;
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
  PDJOB_TRY(std::shared_ptr<const SharedMapping> mapping,
            mappings_.map(shared, grant.shared_bytes));
  std::vector<Window> windows;
  windows.reserve(grant.windows.size());
  for (const GrantedWindow& window : grant.windows) {
    const uint64_t bytes = uint64_t{window.row_bytes} * grant.rows;
    if (window.shared_offset > grant.shared_bytes ||
        bytes > grant.shared_bytes - window.shared_offset) {
      return Error{ErrorCode::kInvalidArgument, "a granted window lies outside of its memory"};
    }
    windows.push_back(
        {.base = mapping->base() + window.shared_offset, .row_bytes = window.row_bytes});
  }
  return std::unique_ptr<RowSender>(
      std::make_unique<ShmRowSender>(stream_, grant.id, std::move(mapping), std::move(windows)));
}

std::unique_ptr<RowReceiver> ShmTransport::open_receiver(TransferId /*id*/, const Region& target) {
  return std::make_unique<ShmRowReceiver>(target);
}

}  // namespace pdjob::kvtransfer
