#include "common/os/process_stat.h"

#include <algorithm>
#include <sstream>

#include "common/os/read_text.h"

namespace pdjob {

std::optional<ProcessStat> read_process_stat(const std::string& folder) {
  const std::string text = read_text(folder + "/stat");
  // "PID (NAME) STATE PARENT ...", where the name may hold anything.
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  ProcessStat stat;
  rest >> stat.state >> stat.parent;
  for (int64_t group_to_tpgid = 0, field = 5; field < 9; ++field) {
    rest >> group_to_tpgid;
  }
  rest >> stat.flags;
  return rest ? std::optional(stat) : std::nullopt;
}

}  // namespace pdjob
