// MsgpackReader: reads the values of a msgpack text one by one, in place. A list or map yields only
// its head as a value; its content comes next. Input is not trusted: a length beyond the text, or
// an invalid first byte, gives kBroken from then on. Value.
#pragma once

#include <cstdint>
#include <string_view>

namespace pdjob::openai {

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
    std::string_view bytes;  // Content of a text or of bytes.
  };

  explicit MsgpackReader(std::string_view text) : left_(text) {}

  Value next();
  // Skips the next value with its content. False: it is broken.
  bool skip();
  bool at_end() const { return left_.empty(); }
  // Upper bound for the items of any list that follows.
  size_t bytes_left() const { return left_.size(); }

 private:
  // Big-endian. False: fewer bytes are left.
  bool take_number(size_t bytes, uint64_t& number);
  Value take_integer(size_t bytes, bool is_signed);
  Value take_sized(Kind kind, size_t size_bytes);
  Value take_bytes(Kind kind, uint64_t size);
  Value broken();

  std::string_view left_;
};

}  // namespace pdjob::openai
