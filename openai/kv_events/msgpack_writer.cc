#include "openai/kv_events/msgpack_writer.h"

#include <bit>

namespace pdjob::openai {

MsgpackWriter& MsgpackWriter::list(uint32_t items) {
  if (items < 16) {
    tagged(static_cast<uint8_t>(0x90 | items), 0, 0);
  } else if (items <= UINT16_MAX) {
    tagged(0xdc, items, 2);
  } else {
    tagged(0xdd, items, 4);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::number(uint64_t value) {
  if (value < 0x80) {
    tagged(static_cast<uint8_t>(value), 0, 0);
  } else if (value <= UINT8_MAX) {
    tagged(0xcc, value, 1);
  } else if (value <= UINT16_MAX) {
    tagged(0xcd, value, 2);
  } else if (value <= UINT32_MAX) {
    tagged(0xce, value, 4);
  } else {
    tagged(0xcf, value, 8);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::real(double value) {
  tagged(0xcb, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

MsgpackWriter& MsgpackWriter::text(std::string_view value) {
  if (value.size() < 32) {
    tagged(static_cast<uint8_t>(0xa0 | value.size()), 0, 0);
  } else if (value.size() <= UINT8_MAX) {
    tagged(0xd9, value.size(), 1);
  } else if (value.size() <= UINT16_MAX) {
    tagged(0xda, value.size(), 2);
  } else {
    tagged(0xdb, value.size(), 4);
  }
  out_.append(value);
  return *this;
}

MsgpackWriter& MsgpackWriter::nil() {
  tagged(0xc0, 0, 0);
  return *this;
}

void MsgpackWriter::tagged(uint8_t tag, uint64_t value, size_t bytes) {
  out_ += static_cast<char>(tag);
  for (size_t byte = bytes; byte-- > 0;) {
    out_ += static_cast<char>(value >> (8 * byte));
  }
}

}  // namespace pdjob::openai
