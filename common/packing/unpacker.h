// Unpacker: turns gzip or zstd bytes into what they hold, piece by piece. It knows no files and no
// sockets. The only door to zlib and zstd. Value.
#pragma once

#include <memory>
#include <span>

#include "common/result.h"

namespace pdjob {

enum class Packing { kNone, kGzip, kZstd };

class Unpacker {
 public:
  // `zstd_window_log_max`: the memory that a zstd frame may ask for, as a power of two. Requires:
  // `packing` is not kNone.
  static std::unique_ptr<Unpacker> create(Packing packing, int zstd_window_log_max);
  virtual ~Unpacker() = default;

  // Takes bytes off the front of `packed`, writes to `to`, and returns how many bytes it wrote.
  // Members and frames may follow each other. It can still have bytes while `packed` is empty: call
  // it until it writes none. kCorrupt: `packed` is not of this packing.
  virtual Result<size_t> unpack(std::span<const char>& packed, std::span<char> to) = 0;
  // A frame or member has begun and not ended.
  bool inside() const { return inside_; }

 protected:
  void set_inside(bool inside) { inside_ = inside; }

 private:
  bool inside_ = false;
};

}  // namespace pdjob
