#include "worker/foreign/engine_lists.h"

#include <algorithm>
#include <string_view>

#include "openai/json/json_edit.h"

namespace pdjob::worker {

std::vector<std::string> listed_routes(std::vector<std::string> routes,
                                       const std::string& document) {
  static constexpr std::string_view kPaths = "paths";
  const auto object = openai::JsonObject::scan(document, {&kPaths, 1});
  const std::string paths(object ? object->value(kPaths) : std::string_view());
  const auto members = openai::json_members(paths);
  if (!members) {
    return routes;
  }
  std::erase_if(routes, [&](const std::string& route) {
    return std::ranges::find(*members, route, &openai::JsonMember::name) == members->end();
  });
  return routes;
}

bool take_models(const openai::ListedModels& listed, net::WorkerEntry& entry) {
  const net::WorkerEntry before = entry;
  if (entry.created == 0) {
    entry.created = listed.created;
    entry.context_max = listed.context_max;
  }
  entry.adapters = listed.adapters;
  return entry != before;
}

}  // namespace pdjob::worker
