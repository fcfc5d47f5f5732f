#include "kvtransfer/tcp/tcp_transport.h"

#include <array>

#include "kvtransfer/rows/row_digest.h"

namespace pdjob::kvtransfer {
namespace {

constexpr size_t kPiecesMax = 64;

class TcpRowSender final : public RowSender {
 public:
  TcpRowSender(LinkStream& stream, TransferId id) : stream_(stream), id_(id) {}

  void start(const Region& source, RowRange range) override {
    cursor_ = RowCursor(source.windows, range);
    stream_.send(Rows{.id = id_,
                      .first = range.first,
                      .count = range.count,
                      .payload_bytes = cursor_.bytes_left()});
    stream_.begin_payload(cursor_.bytes_left());
  }

  Result<Progress> advance(size_t bytes_max) override {
    while (cursor_.bytes_left() > 0) {
      if (bytes_max == 0) {
        return Progress::kMore;
      }
      std::array<iovec, kPiecesMax> pieces;
      const size_t count = cursor_.gather(pieces, bytes_max);
      const size_t written = stream_.write_payload(std::span(pieces).first(count));
      if (written == 0) {
        return Progress::kBlocked;
      }
      bytes_max -= written;
      hash_and_advance(digest_, cursor_, written);
    }
    return Progress::kDone;
  }

  uint64_t digest() const override { return digest_.value(); }

 private:
  LinkStream& stream_;
  TransferId id_;
  RowCursor cursor_;
  RowDigest digest_;
};

class TcpRowReceiver final : public RowReceiver, public PayloadSink {
 public:
  explicit TcpRowReceiver(const Region& target) : windows_(target.windows) {}

  PayloadSink* announced(RowRange range) override {
    rows_announced_ = range.first + range.count;
    cursor_ = RowCursor(windows_, range);
    return this;
  }
  Progress advance(size_t /*bytes_max*/) override { return Progress::kDone; }
  uint32_t rows_arrived() const override { return rows_arrived_; }
  uint64_t digest() const override { return digest_.value(); }

  size_t next_pieces(std::span<iovec> pieces, size_t bytes_max) override {
    return cursor_.gather(pieces, bytes_max);
  }
  void filled(size_t bytes) override {
    hash_and_advance(digest_, cursor_, bytes);
    if (cursor_.bytes_left() == 0) {
      rows_arrived_ = rows_announced_;
    }
  }

 private:
  std::span<const Window> windows_;
  RowCursor cursor_;
  RowDigest digest_;
  uint32_t rows_announced_ = 0;
  uint32_t rows_arrived_ = 0;
};

}  // namespace

Result<std::unique_ptr<RowSender>> TcpTransport::open_sender(const Grant& grant, Fd /*shared*/) {
  return std::unique_ptr<RowSender>(std::make_unique<TcpRowSender>(stream_, grant.id));
}

std::unique_ptr<RowReceiver> TcpTransport::open_receiver(const Grant& /*grant*/,
                                                         const Region& target) {
  return std::make_unique<TcpRowReceiver>(target);
}

}  // namespace pdjob::kvtransfer
