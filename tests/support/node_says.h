// What happens to processes, as the nodes on which they run say it.
#pragma once

#include <algorithm>
#include <string>
#include <variant>

#include "launcher/job/job.h"

namespace pdjob::test {

// Names the node of the process, unless the event names one.
inline launcher::Event as_its_node_says(launcher::Event event, const launcher::Job& job) {
  std::visit(
      [&job](auto& said) {
        if constexpr (requires {
                        said.incarnation;
                        said.node.size();
                      }) {
          const auto process =
              std::ranges::find(job.processes(), said.incarnation, &launcher::Process::incarnation);
          if (said.node.empty() && process != job.processes().end()) {
            said.node = process->place.node;
          }
        }
      },
      event);
  return event;
}

}  // namespace pdjob::test
