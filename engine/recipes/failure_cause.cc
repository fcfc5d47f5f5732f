#include "engine/recipes/failure_cause.h"

#include <algorithm>
#include <array>
#include <ranges>

namespace pdjob::engine {
namespace {

struct Sign {
  std::string_view text;  // In lower case.
  std::string_view cause;
};

constexpr std::string_view kMemory = "it ran out of memory";
constexpr std::string_view kFlag = "it does not know a flag";
constexpr std::string_view kPort = "a port is in use";
constexpr std::string_view kPackage = "a package is missing";
constexpr std::string_view kModel = "it cannot find the model";

constexpr auto kSigns = std::to_array<Sign>({
    {"out of memory", kMemory},
    {"outofmemoryerror", kMemory},
    {"memoryerror", kMemory},
    {"cannot allocate memory", kMemory},
    {"no available memory for the cache blocks", kMemory},
    {"free memory on device", kMemory},
    {"unrecognized arguments", kFlag},
    {"no such option", kFlag},
    {"unexpected argument", kFlag},
    {"unknown option", kFlag},
    {"address already in use", kPort},
    {"port is already allocated", kPort},
    {"modulenotfounderror", kPackage},
    {"no module named", kPackage},
    {"importerror", kPackage},
    {"packagenotfounderror", kPackage},
    {"cannot open shared object file", kPackage},
    {"is not a local folder and is not a valid model identifier", kModel},
    {"repositorynotfounderror", kModel},
    {"localentrynotfounderror", kModel},
});

constexpr size_t kShownBytesMax = 200;

}  // namespace

std::string failure_cause(const std::vector<std::string>& last_lines) {
  for (const std::string& line : std::views::reverse(last_lines)) {
    std::string lower = line;
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    for (const Sign& sign : kSigns) {
      if (lower.find(sign.text) != std::string::npos) {
        return std::string(sign.cause) + ": " + line.substr(0, kShownBytesMax);
      }
    }
  }
  return "";
}

}  // namespace pdjob::engine
