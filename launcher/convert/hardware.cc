#include "launcher/convert/hardware.h"

#include <algorithm>
#include <array>

namespace pdjob::launcher {
namespace {

constexpr auto kHardware = std::to_array<Hardware>({
    {.name = "h20", .family = "hopper", .brand = "nvidia", .gpu_gb = 96},
    {.name = "h100", .family = "hopper", .brand = "nvidia", .gpu_gb = 80},
    {.name = "h200", .family = "hopper", .brand = "nvidia", .gpu_gb = 141},
    {.name = "b200", .family = "blackwell", .brand = "nvidia", .gpu_gb = 180},
    {.name = "b300", .family = "blackwell", .brand = "nvidia", .gpu_gb = 288},
    {.name = "gb200",
     .family = "blackwell",
     .brand = "nvidia",
     .gpus = 4,
     .gpu_gb = 186,
     .nvlink_across_nodes = true},
    {.name = "gb300",
     .family = "blackwell",
     .brand = "nvidia",
     .gpus = 4,
     .gpu_gb = 288,
     .nvlink_across_nodes = true},
    {.name = "mi300x", .family = "amd", .brand = "amd", .gpu_gb = 192},
    {.name = "mi325x", .family = "amd", .brand = "amd", .gpu_gb = 256},
    {.name = "mi355x", .family = "amd", .brand = "amd", .gpu_gb = 288},
});

// Other words for hardware in recipes.
constexpr auto kElsewhere = std::to_array<std::string_view>({"ada",
                                                             "tpu",
                                                             "cpu",
                                                             "xpu",
                                                             "npu",
                                                             "google",
                                                             "intel",
                                                             "huawei",
                                                             "default",
                                                             "dgx_station_gb300",
                                                             "dgx_spark_gb10",
                                                             "rtx_pro_6000",
                                                             "rtx_pro_6000_2x",
                                                             "rtx_pro_6000_8x",
                                                             "rtx_pro_5000",
                                                             "rtx_pro_5000_4x",
                                                             "rtx_5090",
                                                             "rtx_5090_2x",
                                                             "rtx_4090_2x",
                                                             "trillium",
                                                             "ironwood",
                                                             "xeon5",
                                                             "xeon6",
                                                             "arc_pro_b60",
                                                             "arc_pro_b70",
                                                             "ascend_950pr"});

}  // namespace

const Hardware* find_hardware(std::string_view name) {
  const auto* const found = std::ranges::find(kHardware, name, &Hardware::name);
  return found == kHardware.end() ? nullptr : found;
}

std::string hardware_names() {
  std::string names;
  for (const Hardware& hardware : kHardware) {
    names.append(names.empty() ? "" : ", ").append(hardware.name);
  }
  return names;
}

bool is_hardware_key(std::string_view key) {
  return std::ranges::find(kElsewhere, key) != kElsewhere.end() ||
         std::ranges::any_of(kHardware, [&](const Hardware& hardware) {
           return key == hardware.name || key == hardware.family || key == hardware.brand;
         });
}

}  // namespace pdjob::launcher
