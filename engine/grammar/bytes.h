// Converts numbers and texts to bytes and back, to send them to another process of the same program
// on the same machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

class BytesWriter {
 public:
  void number(uint32_t number) { raw(&number, sizeof number); }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  // `size` bytes without their size.
  void raw(const void* from, size_t size) { bytes_.append(static_cast<const char*>(from), size); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads fail with kCorrupt if the bytes end too early.
class BytesReader {
 public:
  explicit BytesReader(std::string_view bytes) : left_(bytes) {}

  Result<uint32_t> number() {
    uint32_t number = 0;
    PDJOB_TRY_STATUS(raw(&number, sizeof number));
    return number;
  }
  // A view into the given bytes; valid as long as they are.
  Result<std::string_view> text() {
    PDJOB_TRY(const uint32_t size, number());
    if (size > left_.size()) {
      return Error{ErrorCode::kCorrupt, "the bytes end too early"};
    }
    const std::string_view text = left_.substr(0, size);
    left_.remove_prefix(size);
    return text;
  }
  Status raw(void* into, size_t size) {
    if (size > left_.size()) {
      return Error{ErrorCode::kCorrupt, "the bytes end too early"};
    }
    std::memcpy(into, left_.data(), size);
    left_.remove_prefix(size);
    return ok();
  }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

}  // namespace pdjob::engine
