#include "openai/kv_events/msgpack_reader.h"

namespace pdjob::openai {

using Value = MsgpackReader::Value;

// github.com/msgpack/msgpack/blob/master/spec.md
Value MsgpackReader::next() {
  uint64_t head = 0;
  if (!take_number(1, head)) {
    return broken();
  }
  if (head <= 0x7f) {
    return {.kind = Kind::kUnsigned, .number = head};
  }
  if (head <= 0x8f) {
    return {.kind = Kind::kMap, .number = head & 0x0f};
  }
  if (head <= 0x9f) {
    return {.kind = Kind::kList, .number = head & 0x0f};
  }
  if (head <= 0xbf) {
    return take_bytes(Kind::kText, head & 0x1f);
  }
  if (head >= 0xe0) {
    return {.kind = Kind::kNegative, .number = head | ~uint64_t{0xff}};
  }
  switch (head) {
    case 0xc0:
      return {.kind = Kind::kNil};
    case 0xc2:
    case 0xc3:
      return {.kind = Kind::kBool, .number = head & 1};
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return take_sized(Kind::kBytes, size_t{1} << (head - 0xc4));
    case 0xca:
    case 0xcb: {
      uint64_t ignored = 0;
      return take_number(head == 0xca ? 4 : 8, ignored) ? Value{.kind = Kind::kFloat} : broken();
    }
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return take_integer(size_t{1} << (head - 0xcc), /*is_signed=*/false);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
      return take_integer(size_t{1} << (head - 0xd0), /*is_signed=*/true);
    case 0xd9:
    case 0xda:
    case 0xdb:
      return take_sized(Kind::kText, size_t{1} << (head - 0xd9));
    case 0xdc:
    case 0xdd:
      return take_sized(Kind::kList, head == 0xdc ? 2 : 4);
    case 0xde:
    case 0xdf:
      return take_sized(Kind::kMap, head == 0xde ? 2 : 4);
    default:
      return broken();  // Extensions, which our peers do not write, and 0xc1, which is never valid.
  }
}

// Not recursive, because the writer decides how deep lists nest.
bool MsgpackReader::skip() {
  for (uint64_t values = 1; values > 0; --values) {
    const Value value = next();
    if (value.kind == Kind::kBroken) {
      return false;
    }
    if (value.kind == Kind::kList || value.kind == Kind::kMap) {
      values += value.kind == Kind::kMap ? 2 * value.number : value.number;
    }
  }
  return true;
}

bool MsgpackReader::take_number(size_t bytes, uint64_t& number) {
  if (left_.size() < bytes) {
    return false;
  }
  for (const char byte : left_.substr(0, bytes)) {
    number = number << 8 | static_cast<uint8_t>(byte);
  }
  left_.remove_prefix(bytes);
  return true;
}

Value MsgpackReader::take_integer(size_t bytes, bool is_signed) {
  uint64_t number = 0;
  if (!take_number(bytes, number)) {
    return broken();
  }
  const bool is_negative = is_signed && (number >> (8 * bytes - 1)) != 0;
  if (is_negative && bytes < 8) {
    number |= ~uint64_t{0} << (8 * bytes);
  }
  return {.kind = is_negative ? Kind::kNegative : Kind::kUnsigned, .number = number};
}

Value MsgpackReader::take_sized(Kind kind, size_t size_bytes) {
  uint64_t size = 0;
  if (!take_number(size_bytes, size)) {
    return broken();
  }
  return kind == Kind::kList || kind == Kind::kMap ? Value{.kind = kind, .number = size}
                                                   : take_bytes(kind, size);
}

Value MsgpackReader::take_bytes(Kind kind, uint64_t size) {
  if (left_.size() < size) {
    return broken();
  }
  const Value value{.kind = kind, .bytes = left_.substr(0, size)};
  left_.remove_prefix(size);
  return value;
}

Value MsgpackReader::broken() {
  left_ = {};
  return {};
}

}  // namespace pdjob::openai
