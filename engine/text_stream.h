// TextStream: the text of one generation, token by token. It holds back an incomplete UTF-8
// character, and text that may be the beginning of a stop string. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"

namespace pdjob::engine {

class TextStream {
 public:
  explicit TextStream(const StopParams& stop);

  // Adds the bytes of one token and appends to `out` the text that may be shown now. Returns true
  // if a stop string is complete. The text then ends before it, or after it with
  // include_stop_string.
  bool push(std::string_view piece, std::string& out);
  // Call after the last token: appends the text held back. An incomplete character becomes U+FFFD.
  void finish(std::string& out);
  // The stop string that push() completed; empty before.
  const std::string& stop() const { return stop_; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;  // Not yet shown.
  std::string stop_;
};

}  // namespace pdjob::engine
