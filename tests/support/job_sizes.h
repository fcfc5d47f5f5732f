// Orders for a Job of one model: how many workers its two groups should have.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/events.h"

namespace pdjob::test {

inline launcher::GroupsChanged sizes(uint32_t prefill, uint32_t decode,
                                     const launcher::Demand& demand = {},
                                     const std::string& model = "") {
  return {.groups = {{.name = "prefill",
                      .role = net::Role::kPrefill,
                      .model = model,
                      .demand = demand,
                      .wanted = prefill},
                     {.name = "decode",
                      .role = net::Role::kDecode,
                      .model = model,
                      .demand = demand,
                      .wanted = decode}}};
}

}  // namespace pdjob::test
