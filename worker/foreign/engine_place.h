// What an engine of another make finds on its machine: network interfaces, and variables that are
// set already.
#pragma once

#include <string>
#include <utility>

#include "common/files/fd.h"
#include "common/result.h"
#include "engine/recipes/foreign_config.h"

namespace pdjob::worker {

// Whoever runs this machine may have chosen its NICs and interfaces: a variable that is set here
// stays.
engine::EngineRecipe recipe_here(const engine::ForeignConfig& config, const std::string& host);

// A file that an engine reads by its path while this process lives. Nothing of it is left then.
class StoreFile {
 public:
  static Result<StoreFile> make();
  Status write(const std::string& text);  // In place of what was in it.
  std::string path() const;

 private:
  explicit StoreFile(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// The network interface with this address. Empty: there is none.
std::string interface_of(const std::string& host);

}  // namespace pdjob::worker
