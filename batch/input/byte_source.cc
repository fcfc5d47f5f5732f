#include "batch/input/byte_source.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "common/crypto/blake2b.h"
#include "common/hex.h"
#include "net/loop/socket.h"

namespace pdjob::batch {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
// More memory than zstd's own tool takes without being asked would be a risk to the others.
constexpr int kZstdWindowLogMax = 27;

bool same_file(const struct stat& before, const struct stat& after) {
  return before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == after.st_mtim.tv_nsec;
}

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::string name, net::Fd fd, const struct stat& found)
      : name_(std::move(name)), fd_(std::move(fd)), found_(found) {}

  Result<size_t> read(std::span<char> to) override {
    const ssize_t got = ::read(fd_.get(), to.data(), to.size());
    if (got < 0) {
      return errno == EINTR ? read(to)
                            : Error{ErrorCode::kUnavailable,
                                    "cannot read " + name_ + ": " + std::strerror(errno)};
    }
    total_ += static_cast<uint64_t>(got);
    hash_.add(std::as_bytes(to.first(static_cast<size_t>(got))));
    return got > 0 ? static_cast<size_t>(got) : end();
  }

  std::string digest() override {
    std::string text;
    for (const std::byte byte : hash_.finish()) {
      append_hex(text, std::to_integer<uint64_t>(byte), 2);
    }
    return text;
  }

 private:
  Result<size_t> end() {
    struct stat now{};
    if (!S_ISREG(found_.st_mode) || fstat(fd_.get(), &now) != 0) {
      return size_t{0};
    }
    if (total_ < static_cast<uint64_t>(found_.st_size)) {
      return Error{ErrorCode::kUnavailable,
                   name_ + " shrank while it was read, from " + std::to_string(found_.st_size) +
                       " bytes to " + std::to_string(total_) + ": give it a file that stays"};
    }
    return same_file(found_, now)
               ? Result(size_t{0})
               : Error{ErrorCode::kUnavailable,
                       name_ + " changed while it was read: give it a file that stays"};
  }

  const std::string name_;
  const net::Fd fd_;
  const struct stat found_;
  uint64_t total_ = 0;
  Blake2b hash_{"pdjob input"};
};

// Both packings share this: packed bytes in, unpacked bytes out.
class PackedSource : public ByteSource {
 public:
  PackedSource(std::string name, std::unique_ptr<ByteSource> packed)
      : name_(std::move(name)), packed_(std::move(packed)), buffer_(kBufferBytes) {}

  Result<size_t> read(std::span<char> to) final {
    while (true) {
      if (input_.packed.empty() && !ended_) {
        PDJOB_TRY(const size_t got, packed_->read(buffer_));
        input_.packed = std::span(buffer_).first(got);
        ended_ = got == 0;
      }
      const bool at_end = input_.packed.empty() && ended_;
      if (at_end && !input_.inside) {
        return size_t{0};
      }
      PDJOB_TRY(const size_t made, unpack(input_, to));  // At the end, it may still have some.
      if (made > 0) {
        return made;
      }
      if (at_end) {
        return corrupt("it ends in the middle");
      }
    }
  }
  std::string digest() final { return packed_->digest(); }

 protected:
  struct Input {
    std::span<char> packed;
    bool inside = false;  // A frame or member has begun and not ended.
  };
  // Moves on in `input`, and returns how many bytes it wrote.
  virtual Result<size_t> unpack(Input& input, std::span<char> to) = 0;
  Error corrupt(const std::string& why) const {
    return {ErrorCode::kCorrupt, name_ + " cannot be unpacked: " + why};
  }

 private:
  const std::string name_;
  const std::unique_ptr<ByteSource> packed_;
  std::vector<char> buffer_;
  Input input_;
  bool ended_ = false;
};

class GzipSource final : public PackedSource {
 public:
  using PackedSource::PackedSource;
  ~GzipSource() override {
    if (started_) {
      inflateEnd(&stream_);
    }
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

 private:
  // Members follow each other, as `cat a.gz b.gz` makes them.
  Result<size_t> unpack(Input& input, std::span<char> to) override {
    constexpr int kGzipOnly = 16;
    if (!started_ && inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) {
      return corrupt("zlib cannot start");
    }
    started_ = true;
    input.inside = true;
    stream_.next_in = reinterpret_cast<Bytef*>(input.packed.data());
    stream_.avail_in = static_cast<uInt>(input.packed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(to.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    input.packed = input.packed.last(stream_.avail_in);
    const size_t made = to.size() - stream_.avail_out;
    if (result == Z_STREAM_END) {
      input.inside = false;
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return corrupt(stream_.msg != nullptr ? stream_.msg : "it is not gzip");
    }
    return made;
  }

  z_stream stream_{};
  bool started_ = false;
};

class ZstdSource final : public PackedSource {
 public:
  ZstdSource(std::string name, std::unique_ptr<ByteSource> packed)
      : PackedSource(std::move(name), std::move(packed)), stream_(ZSTD_createDStream()) {
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kZstdWindowLogMax);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

 private:
  Result<size_t> unpack(Input& input, std::span<char> to) override {
    ZSTD_inBuffer in{input.packed.data(), input.packed.size(), 0};
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    const size_t result = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(result) != 0) {
      return corrupt(ZSTD_getErrorName(result));
    }
    input.inside = result != 0;
    input.packed = input.packed.subspan(in.pos);
    return out.pos;
  }

  ZSTD_DStream* const stream_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> ByteSource::open(const std::string& path, Packing packing) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  net::Fd fd(is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found{};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) {
    return Error{ErrorCode::kInvalidArgument, "cannot open " + name + ": " + std::strerror(errno)};
  }
  if (S_ISDIR(found.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, name + " is a folder: name the files in it"};
  }
  std::unique_ptr<ByteSource> plain = std::make_unique<PlainSource>(name, std::move(fd), found);
  switch (packing) {
    case Packing::kNone:
      break;
    case Packing::kGzip:
      return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(name, std::move(plain)));
    case Packing::kZstd:
      return std::unique_ptr<ByteSource>(std::make_unique<ZstdSource>(name, std::move(plain)));
  }
  return plain;
}

}  // namespace pdjob::batch
