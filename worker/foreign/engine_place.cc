#include "worker/foreign/engine_place.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "net/loop/socket.h"

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

Result<StoreFile> StoreFile::make() {
  Fd fd(memfd_create("pdjob-store-file", MFD_CLOEXEC));
  if (!fd.valid()) {
    return system_error("memfd_create");
  }
  return StoreFile(std::move(fd));
}

Status StoreFile::write(const std::string& text) {
  const auto size = static_cast<ssize_t>(text.size());
  if (ftruncate(fd_.get(), 0) != 0 || pwrite(fd_.get(), text.data(), text.size(), 0) != size) {
    return system_error("writing " + path());
  }
  return ok();
}

// The engine's processes run as the same user.
std::string StoreFile::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_.get());
}

std::string interface_of(const std::string& host) {
  const auto here = net::own_addresses();
  if (!here) {
    return "";
  }
  const auto own = std::ranges::find(*here, host, &net::OwnAddress::text);
  return own == here->end() ? "" : own->interface;
}

}  // namespace pdjob::worker
