// NearDevices: what of a node is nearest to the GPUs of one worker. A plan shows it, and the
// worker's process gets it. Value; the functions are Pure.
#pragma once

#include <string>
#include <vector>

#include "common/json/json_writer.h"
#include "launcher/placement/demand.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

// Empty: nothing is known, or there is no choice.
struct NearDevices {
  std::string gpus;  // How the GPUs are joined, for people: "one NVLink island".
  std::vector<std::string> nics;
  std::string cpus;  // The only CPUs that the worker uses, as in common/config/number_list.h.
  std::string memory_node;  // Number of the NUMA node from which its memory comes first.

  std::string nics_text() const;  // "mlx5_0,mlx5_1"
  // All of it, in one line for people. Empty: nothing is known.
  std::string text() const;
  friend bool operator==(const NearDevices&, const NearDevices&) = default;
};

// `nodes`: all that the job has. CPUs are left as they are if there would be fewer than the
// demand's cores. There are no NICs unless each node with GPUs has some, because a worker that is
// bound to its NICs cannot reach one without any.
NearDevices near_devices(const std::vector<Node>& nodes, const PlacePart& part,
                         const Demand& demand);

// Adds what is known as members of an object.
void append_near(JsonWriter& json, const NearDevices& near);

}  // namespace pdjob::launcher
