// Frees the memory of a text. `text = std::string()` does not: libstdc++ keeps the buffer. Pure.
#pragma once

#include <cstddef>
#include <string>

namespace pdjob::net {

// Empties the text. Frees a buffer of more than `kept` bytes.
inline void free_text(std::string& text, size_t kept = 0) {
  if (text.capacity() > kept) {
    std::string().swap(text);
  } else {
    text.clear();
  }
}

}  // namespace pdjob::net
