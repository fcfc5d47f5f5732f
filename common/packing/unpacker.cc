#include "common/packing/unpacker.h"

#include <string>

#include <zlib.h>
#include <zstd.h>

#include "common/check.h"

namespace pdjob {
namespace {

class GzipUnpacker final : public Unpacker {
 public:
  GzipUnpacker() {
    constexpr int kGzipOnly = 16;
    started_ = inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK;
  }
  ~GzipUnpacker() override {
    if (started_) {
      inflateEnd(&stream_);
    }
  }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;

  // Members follow each other, as `cat a.gz b.gz` makes them.
  Result<size_t> unpack(std::span<const char>& packed, std::span<char> to) override {
    if (!started_) {
      return Error{ErrorCode::kUnavailable, "zlib cannot start"};
    }
    set_inside(true);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(to.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    packed = packed.last(stream_.avail_in);
    const size_t made = to.size() - stream_.avail_out;
    if (result == Z_STREAM_END) {
      set_inside(false);
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return Error{ErrorCode::kCorrupt, stream_.msg != nullptr ? stream_.msg : "it is not gzip"};
    }
    return made;
  }

 private:
  z_stream stream_{};
  bool started_ = false;
};

class ZstdUnpacker final : public Unpacker {
 public:
  explicit ZstdUnpacker(int window_log_max) : stream_(ZSTD_createDStream()) {
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, window_log_max);
  }
  ~ZstdUnpacker() override { ZSTD_freeDStream(stream_); }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;

  Result<size_t> unpack(std::span<const char>& packed, std::span<char> to) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    const size_t result = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(result) != 0) {
      return Error{ErrorCode::kCorrupt, ZSTD_getErrorName(result)};
    }
    set_inside(result != 0);
    packed = packed.subspan(in.pos);
    return out.pos;
  }

 private:
  ZSTD_DStream* const stream_;
};

}  // namespace

std::unique_ptr<Unpacker> Unpacker::create(Packing packing, int zstd_window_log_max) {
  PDJOB_CHECK(packing != Packing::kNone);
  if (packing == Packing::kGzip) {
    return std::make_unique<GzipUnpacker>();
  }
  return std::make_unique<ZstdUnpacker>(zstd_window_log_max);
}

}  // namespace pdjob
