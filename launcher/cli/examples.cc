#include "launcher/cli/examples.h"

#include <array>

#include "common/check.h"
#include "common/config/shipped_files.h"

namespace pdjob::launcher {
namespace {

constexpr auto kShipped = std::to_array<ShippedFile>({
#include "launcher/cli/shipped_recipes.inc"
});

}  // namespace

std::vector<std::string> example_names() { return shipped_names(kShipped); }

std::string example_text(const std::string& name) {
  const ShippedFile* const found = find_shipped(kShipped, name);
  PDJOB_CHECK(found != nullptr, name);
  return std::string(found->text);
}

}  // namespace pdjob::launcher
