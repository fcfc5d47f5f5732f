#include "launcher/look/plain_text.h"

#include <cstddef>

namespace pdjob::launcher {

namespace {

bool is_control(unsigned char byte) {
  return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
}

// U+0080 to U+009F as UTF-8: some terminals obey them as they obey ESC.
bool is_second_control(unsigned char first, unsigned char second) {
  return first == 0xc2 && second >= 0x80 && second <= 0x9f;
}

}  // namespace

std::string plain_text(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (is_control(byte)) {
      text[i] = '?';
    } else if (i + 1 < text.size() &&
               is_second_control(byte, static_cast<unsigned char>(text[i + 1]))) {
      text[i] = text[i + 1] = '?';
    }
  }
  return text;
}

}  // namespace pdjob::launcher
