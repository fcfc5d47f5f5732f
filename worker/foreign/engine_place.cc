#include "worker/foreign/engine_place.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

namespace pdjob::worker {

engine::EngineRecipe recipe_here(const engine::ForeignConfig& config, const std::string& host) {
  engine::EngineRecipe recipe = engine::recipe_at(config, host);
  for (engine::RecipePart* const part : {&recipe.near, &recipe.nodes}) {
    std::erase_if(part->environment, [](const std::string& variable) {
      return std::getenv(variable.substr(0, variable.find('=')).c_str()) != nullptr;
    });
  }
  return recipe;
}

std::string interface_of(const std::string& host) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return "";
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const int family = at->ifa_addr == nullptr ? AF_UNSPEC : at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) {
      continue;
    }
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const int failed =
        getnameinfo(at->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    if (failed == 0 && host == text.data()) {
      return at->ifa_name;
    }
  }
  return "";
}

}  // namespace pdjob::worker
