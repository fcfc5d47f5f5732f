// What an output is not held to, as one line for a header. Value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pdjob::engine {

class NotHeld {
 public:
  // `place`: the field of the request that the parts belong to.
  void add(const std::string& place, const std::vector<std::string>& parts);

  // "tools[0].properties.tags: uniqueItems; tools[1]: not", in printable ASCII, of at most
  // kNotHeldBytesMax bytes; "and 7 more" stands for the rest.
  std::string line() const;

 private:
  std::string line_;
  size_t left_out_ = 0;
};

}  // namespace pdjob::engine
