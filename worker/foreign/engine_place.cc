#include "worker/foreign/engine_place.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "net/loop/child_process.h"
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

engine::EngineValues engine_values(const net::ProcessSpec& spec, const engine::EngineConfig& engine,
                                   Duration lease) {
  return {.model = engine.model_path,
          .served_name = engine.served_name,
          .name = spec.name,
          .role = net::to_string(spec.role),
          .host = spec.host,
          .engine_id = spec.engine_id,
          .lease = lease,
          .threads = engine.threads,
          .gpu = engine.gpu,
          .gpu_percent = engine.gpu_percent,
          .shape = engine::shape_of(engine.foreign, engine.gpu),
          .part = spec.part,
          .head_host = spec.part == 0 ? "" : spec.head_host,
          .nics = spec.nics,
          .changes_weights = !spec.weights.version.empty()};
}

Result<std::string> find_engine_program(const engine::ForeignConfig& config, std::string_view key) {
  const engine::EngineRecipe recipe = engine::recipe_of(config);
  auto program =
      net::find_program(config.program.empty() ? recipe.command.front() : config.program);
  if (!program) {
    return Error{program.error().code,
                 program.error().message + ": " +
                     (recipe.install.empty() ? "install it" : recipe.install) + ", or name it in " +
                     std::string(key)};
  }
  return program;
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
