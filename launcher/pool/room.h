// Room: what is free on nodes, when shares of them are taken. Pure.
#pragma once

#include <optional>
#include <vector>

#include "launcher/placement/node.h"
#include "launcher/pool/pool_job.h"

namespace pdjob::launcher {

// Its node has so much less, at least nothing. Ignored if the node is not one of them.
void take_from(std::vector<Node>& nodes, const Share& share);

// The same share of another node, with its labels, that leaves the fewest cores. Nothing: there is
// no room.
std::optional<Share> place_of(const std::vector<Node>& nodes, const Share& share);

}  // namespace pdjob::launcher
