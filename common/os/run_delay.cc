#include "common/os/run_delay.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace pdjob {

Duration run_delay() {
  Duration sum{};
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(thread.path() / "schedstat");
    uint64_t ran_ns = 0;
    uint64_t waited_ns = 0;
    if (file >> ran_ns >> waited_ns) {
      sum += std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(waited_ns));
    }
  }
  return sum;
}

}  // namespace pdjob
