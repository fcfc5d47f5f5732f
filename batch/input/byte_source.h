// ByteSource: the bytes of an input file, unpacked (gzip, zstd), from its beginning to its end, and
// the digest of the file as it is. It notices that a file shrinks or changes while it is read.
// Calls block. Loop-bound, or of one helper thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "batch/input/row_format.h"
#include "common/result.h"

namespace pdjob::batch {

class ByteSource {
 public:
  // `path` is "-" for standard input.
  static Result<std::unique_ptr<ByteSource>> open(const std::string& path, Packing packing);
  virtual ~ByteSource() = default;

  // Writes to `to`, and returns the number of bytes; 0: the end.
  // - kCorrupt: the file is cut off, or its format is not that of its name.
  // - kUnavailable: the file changed, or cannot be read.
  virtual Result<size_t> read(std::span<char> to) = 0;
  // BLAKE2b of the file as it is, in hexadecimal. Call it once, after the end.
  virtual std::string digest() = 0;
};

}  // namespace pdjob::batch
