// Nodes as a person writes them, for plans of machines that nobody asks: the file of `pdjob plan
// --assume`. `pdjob nodes --yaml` writes the same form. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

inline constexpr size_t kAssumedNodesMax = 4096;

// A node whose cluster is not written has an empty one. kInvalidArgument: the message lists all
// errors, as config_reader.h does.
Result<std::vector<Node>> parse_assumed_nodes(const std::string& source, const std::string& text);
std::string assumed_nodes_text(const std::vector<Node>& nodes);

}  // namespace pdjob::launcher
