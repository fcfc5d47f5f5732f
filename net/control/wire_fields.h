// WireWriter and WireReader: the fields of a binary message, one after the other. Numbers are
// little-endian; texts and lists have a bounded count. A codec writes its fields once for both
// directions: `template <class Codec> void fields(Codec&, typename Codec::template Ref<T>)`. They
// know no message. Values.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/check.h"

namespace pdjob::net {

// Appends fields. The values are ours, so a broken bound is our bug.
class WireWriter {
 public:
  template <class T>
  using Ref = const T&;

  explicit WireWriter(std::string& out) : out_(out) {}

  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void value(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(static_cast<uint8_t>(value >> (8 * i))));
    }
  }
  void value(int64_t signed_value) { value(static_cast<uint64_t>(signed_value)); }
  void value(bool flag) { value(static_cast<uint8_t>(flag ? 1 : 0)); }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void word(Enum word, Enum /*first*/, Enum /*last*/) {
    value(static_cast<uint8_t>(word));
  }
  template <std::unsigned_integral Size = uint32_t>
  void text(std::string_view text, size_t bytes_max) {
    PDJOB_CHECK(text.size() <= bytes_max, text.size());
    value(static_cast<Size>(text.size()));
    out_ += text;
  }
  // Bytes without their number.
  void raw(std::span<const std::byte> bytes) {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // Calls `each(codec, item)`.
  template <class T, class Each>
  void list(const std::vector<T>& items, size_t count_max, const Each& each) {
    PDJOB_CHECK(items.size() <= count_max, items.size());
    value(static_cast<uint32_t>(items.size()));
    for (const T& item : items) {
      each(*this, item);
    }
  }
  void require(bool condition) { PDJOB_CHECK(condition); }

 private:
  std::string& out_;
};

// Reads fields from hostile bytes. The first invalid field sets `failed`; all later ones read as
// zero.
class WireReader {
 public:
  template <class T>
  using Ref = T&;

  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void value(T& value) {
    value = 0;
    if (!has(sizeof(T))) {
      return;
    }
    for (size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(bytes_[i])) << (8 * i));
    }
    bytes_ = bytes_.subspan(sizeof(T));
  }
  void value(bool& flag) {
    uint8_t byte = 0;
    value(byte);
    failed_ = failed_ || byte > 1;
    flag = byte == 1;
  }
  void value(int64_t& signed_value) {
    uint64_t bits = 0;
    value(bits);
    signed_value = static_cast<int64_t>(bits);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void word(Enum& word, Enum first, Enum last) {
    uint8_t byte = 0;
    value(byte);
    if (byte < static_cast<uint8_t>(first) || byte > static_cast<uint8_t>(last)) {
      failed_ = true;
      return;
    }
    word = static_cast<Enum>(byte);
  }
  template <std::unsigned_integral Size = uint32_t>
  void text(std::string& text, size_t bytes_max) {
    Size size = 0;
    value(size);
    if (size > bytes_max || !has(size)) {
      failed_ = true;
      return;
    }
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
  }
  void raw(std::span<std::byte> bytes) {
    if (has(bytes.size())) {
      std::ranges::copy(bytes_.first(bytes.size()), bytes.begin());
      bytes_ = bytes_.subspan(bytes.size());
    }
  }
  // Grows item by item, so that a false count costs no memory.
  template <class T, class Each>
  void list(std::vector<T>& items, size_t count_max, const Each& each) {
    uint32_t count = 0;
    value(count);
    failed_ = failed_ || count > count_max;
    for (uint32_t i = 0; i < count && !failed_; ++i) {
      each(*this, items.emplace_back());
    }
  }
  void require(bool condition) { failed_ = failed_ || !condition; }
  void skip_rest() { bytes_ = {}; }

 private:
  bool has(size_t size) {
    failed_ = failed_ || bytes_.size() < size;
    return !failed_;
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace pdjob::net
