#include "launcher/clusters/gpu_slices.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace pdjob::launcher {

namespace {

// "GPU-5c89852c" of "GPU 0: NVIDIA A100 (UUID: GPU-5c89852c)"; empty: it has none.
std::string uuid_of(std::string_view line) {
  constexpr std::string_view kBefore = "(UUID: ";
  const size_t at = line.find(kBefore);
  if (at == std::string_view::npos) {
    return "";
  }
  const std::string_view rest = line.substr(at + kBefore.size());
  return std::string(rest.substr(0, rest.find(')')));
}

}  // namespace

bool has_gpu_slices(const std::string& root) {
  // One folder for each: capabilities/gpu0/mig/gi1/ci0.
  std::error_code error;
  for (const auto& gpu :
       std::filesystem::directory_iterator(root + "/proc/driver/nvidia/capabilities", error)) {
    std::error_code none;
    for (const auto& slice : std::filesystem::directory_iterator(gpu.path() / "mig", none)) {
      if (slice.path().filename().string().starts_with("gi")) {
        return true;
      }
    }
  }
  return false;
}

std::vector<std::string> gpus_with_slices(std::string_view list) {
  std::vector<std::string> gpus;
  bool slices = false;
  std::string whole;  // The GPU of the last line; empty: it has slices.
  const auto end_gpu = [&] {
    if (!whole.empty()) {
      gpus.push_back(std::move(whole));
      whole.clear();
    }
  };
  while (!list.empty()) {
    const size_t end = std::min(list.find('\n'), list.size());
    const std::string uuid = uuid_of(list.substr(0, end));
    if (uuid.starts_with("GPU-")) {
      end_gpu();
      whole = uuid;
    } else if (uuid.starts_with("MIG-")) {
      whole.clear();
      gpus.push_back(uuid);
      slices = true;
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  end_gpu();
  return slices ? gpus : std::vector<std::string>();
}

}  // namespace pdjob::launcher
