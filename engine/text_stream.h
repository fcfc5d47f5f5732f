// TextStream: the text of one generation, token by token. It holds back an incomplete UTF-8
// character, and text that may be the beginning of a stop string. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"

namespace pdjob::engine {

class TextStream {
 public:
  explicit TextStream(const StopParams& stop);

  // Whether a stop string that ends in this token ends the text.
  enum class Stops { kCount, kPass };
  // Adds the bytes of one token and appends to `out` the text that may be shown now. Returns true
  // if a stop string is complete. The text then ends before it, or after it with
  // include_stop_string.
  bool push(std::string_view piece, std::string& out, Stops stops = Stops::kCount);
  // Call after the last token: appends the text held back. An incomplete character becomes U+FFFD.
  void finish(std::string& out);
  // The stop string that push() completed; empty before.
  const std::string& stop() const { return stop_; }

 private:
  std::shared_ptr<const std::vector<std::string>> stops_;  // Copies of a stream share them.
  bool include_stop_;
  std::string held_;   // Not yet shown.
  size_t passed_ = 0;  // A stop string that ends in these bytes of it does not count.
  std::string stop_;
};

}  // namespace pdjob::engine
