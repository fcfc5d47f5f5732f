#include "launcher/cli/examples.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

struct Shipped {
  const char* name;
  const char* text;
};
constexpr auto kShipped = std::to_array<Shipped>({
#include "launcher/cli/shipped_recipes.inc"
});

}  // namespace

std::vector<std::string> example_names() {
  std::vector<std::string> names;
  std::ranges::transform(kShipped, std::back_inserter(names), &Shipped::name);
  return names;
}

std::string example_text(const std::string& name) {
  const auto* const found = std::ranges::find(kShipped, name, &Shipped::name);
  PDJOB_CHECK(found != kShipped.end(), name);
  return found->text;
}

}  // namespace pdjob::launcher
