// Fields of a pool's binary texts (net/control/wire_fields.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "launcher/agents/agent_message.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

inline constexpr size_t kPoolTextBytesMax = 64 * limits::kKiB;

template <class Codec>
void label_list(Codec& codec, auto& list) {
  codec.list(list, kNodeFactsMax, [](Codec& each, auto& label) {
    each.text(label.first, kPoolTextBytesMax);
    each.text(label.second, kPoolTextBytesMax);
  });
}

// The labels of a node.
inline void label_fields(net::WireWriter& out, const std::map<std::string, std::string>& labels) {
  const std::vector<std::pair<std::string, std::string>> list(labels.begin(), labels.end());
  label_list(out, list);
}
inline void label_fields(net::WireReader& in, std::map<std::string, std::string>& labels) {
  std::vector<std::pair<std::string, std::string>> list;
  label_list(in, list);
  labels = {list.begin(), list.end()};
}

}  // namespace pdjob::launcher
