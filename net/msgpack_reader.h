// MsgpackReader: the values of a msgpack text one after the other, in place. Of a list or map only
// its head is a value; what is in it comes next. Nothing is trusted: lengths beyond the text, and
// bytes that begin no value, end in kBroken, and it stays at that. Value.
#pragma once

#include <cstdint>
#include <string_view>

namespace pdjob::net {

class MsgpackReader {
 public:
  enum class Kind {
    kBroken,
    kNil,
    kBool,
    kUnsigned,
    kNegative,
    kFloat,
    kText,
    kBytes,
    kList,
    kMap
  };
  struct Value {
    Kind kind = Kind::kBroken;
    uint64_t number = 0;     // An integer, in two's complement; items of a list, pairs of a map.
    std::string_view bytes;  // Of a text or of bytes.
  };

  explicit MsgpackReader(std::string_view text) : left_(text) {}

  Value next();
  // Passes over the next value and all that is in it. False: it is broken.
  bool skip();
  bool at_end() const { return left_.empty(); }
  // No list that is to come can have more items.
  size_t bytes_left() const { return left_.size(); }

 private:
  // Big-endian. False: there are not so many bytes.
  bool take_number(size_t bytes, uint64_t& number);
  Value take_integer(size_t bytes, bool is_signed);
  Value take_sized(Kind kind, size_t size_bytes);
  Value take_bytes(Kind kind, uint64_t size);
  Value broken();

  std::string_view left_;
};

}  // namespace pdjob::net
