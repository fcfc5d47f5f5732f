// MsgpackWriter: appends msgpack values one by one, each in its shortest form. list() writes only
// the head; the caller then writes the items. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob::openai {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  MsgpackWriter& list(uint32_t items);
  MsgpackWriter& number(uint64_t value);
  MsgpackWriter& real(double value);
  MsgpackWriter& text(std::string_view value);
  MsgpackWriter& nil();

 private:
  // Writes a tag byte and a number of `bytes` bytes, big-endian.
  void tagged(uint8_t tag, uint64_t value, size_t bytes);

  std::string& out_;
};

}  // namespace pdjob::openai
