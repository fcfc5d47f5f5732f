#include "batch/input/byte_source.h"

#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crypto/blake2b.h"
#include "common/hex.h"
#include "common/packing/unpacker.h"
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
      return errno == EINTR ? read(to) : system_error("cannot read " + name_);
    }
    total_ += static_cast<uint64_t>(got);
    hash_.add(std::as_bytes(to.first(static_cast<size_t>(got))));
    return got > 0 ? static_cast<size_t>(got) : end();
  }

  std::string digest() override { return hex_of(hash_.finish()); }

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

class PackedSource final : public ByteSource {
 public:
  PackedSource(std::string name, std::unique_ptr<ByteSource> packed, Packing packing)
      : name_(std::move(name)),
        packed_(std::move(packed)),
        unpacker_(Unpacker::create(packing, kZstdWindowLogMax)),
        buffer_(kBufferBytes) {}

  Result<size_t> read(std::span<char> to) override {
    while (true) {
      if (input_.empty() && !ended_) {
        PDJOB_TRY(const size_t got, packed_->read(buffer_));
        input_ = std::span(buffer_).first(got);
        ended_ = got == 0;
      }
      const bool at_end = input_.empty() && ended_;
      if (at_end && !unpacker_->inside()) {
        return size_t{0};
      }
      const Result<size_t> made = unpacker_->unpack(input_, to);  // At the end, it may have some.
      if (!made) {
        return corrupt(made.error().message);
      }
      if (*made > 0) {
        return *made;
      }
      if (at_end) {
        return corrupt("it ends in the middle");
      }
    }
  }
  std::string digest() override { return packed_->digest(); }

 private:
  Error corrupt(const std::string& why) const {
    return {ErrorCode::kCorrupt, name_ + " cannot be unpacked: " + why};
  }

  const std::string name_;
  const std::unique_ptr<ByteSource> packed_;
  const std::unique_ptr<Unpacker> unpacker_;
  std::vector<char> buffer_;
  std::span<const char> input_;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> ByteSource::open(const std::string& path, Packing packing) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  net::Fd fd(is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found{};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) {
    return system_error("cannot open " + name, ErrorCode::kInvalidArgument);
  }
  if (S_ISDIR(found.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, name + " is a folder: name the files in it"};
  }
  std::unique_ptr<ByteSource> plain = std::make_unique<PlainSource>(name, std::move(fd), found);
  if (packing != Packing::kNone) {
    return std::unique_ptr<ByteSource>(
        std::make_unique<PackedSource>(name, std::move(plain), packing));
  }
  return plain;
}

}  // namespace pdjob::batch
