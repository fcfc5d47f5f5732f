// MsgpackWriter: appends values of msgpack one after the other, each in its shortest form; of a
// list its head, behind which its items are to follow. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob::net {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  MsgpackWriter& list(uint32_t items);
  MsgpackWriter& number(uint64_t value);
  MsgpackWriter& real(double value);
  MsgpackWriter& text(std::string_view value);
  MsgpackWriter& nil();

 private:
  // A byte that says what follows, and a number of so many bytes, big-endian.
  void tagged(uint8_t tag, uint64_t value, size_t bytes);

  std::string& out_;
};

}  // namespace pdjob::net
