// TextStream: the text of one generation, token by token. Never gives out half a UTF-8 character,
// nor text that may still turn out to be the beginning of a stop string. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"

namespace pdjob::engine {

class TextStream {
 public:
  explicit TextStream(const StopParams& stop);

  // Adds the bytes of one token; appends to `out` what may be shown now. True: a stop string is
  // complete, and the text ends (before it, or after it with include_stop_string).
  bool push(std::string_view piece, std::string& out);
  // No more tokens: appends what was held back; an unfinished character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;  // Not yet shown.
};

}  // namespace pdjob::engine
