// A user's own recipe, and a router's report of its workers. Any text of either is parsed and
// rendered, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/check.h"
#include "router/recipes/router_recipe.h"

using namespace pdjob;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(router::members_in(router::RouterRecipe{}, text));
  const auto recipe = router::parse_recipe("r.yaml", text);
  if (!recipe) {
    PDJOB_CHECK(!recipe.error().message.empty());
    return 0;
  }
  const std::vector<net::WorkerEntry> workers = {
      {.name = "prefill-0", .role = net::Role::kPrefill, .host = "10.0.0.1", .port = 1},
      {.name = "decode-0", .role = net::Role::kDecode, .host = "::1", .port = 2}};
  const router::RecipeValues values = {.host = "127.0.0.1", .port = 3, .model = "m"};
  for (const bool plain : {false, true}) {
    static_cast<void>(recipe_command(*recipe, values, workers, plain));
  }
  for (const router::RecipeCall* call : {&recipe->add, &recipe->remove}) {
    static_cast<void>(recipe_call(*recipe, *call, workers.front(), "id"));
  }
  return 0;
}
