// RowFiles: reads single rows again, wherever they are. It keeps some files open. Calls block.
// Loop-bound, or of one helper thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::batch {

class RowFiles {
 public:
  explicit RowFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  // Reads into `text`. kCorrupt: the bytes are not there, or have another digest.
  Status read(uint32_t file, uint64_t offset, uint64_t length, uint64_t digest, std::string& text);

 private:
  const std::vector<std::string> paths_;
  std::map<uint32_t, net::Fd> open_;
};

// Tells changed rows from unchanged ones; no protection from somebody who tries. Pure.
uint64_t row_digest(std::string_view text);

}  // namespace pdjob::batch
