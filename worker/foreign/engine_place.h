// What an engine of another make finds where it starts: its program, files, network interfaces, and
// variables that are set already.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/files/fd.h"
#include "common/result.h"
#include "common/time.h"
#include "engine/engine_config.h"
#include "engine/recipes/engine_command.h"
#include "engine/recipes/foreign_config.h"
#include "net/control/process_spec.h"

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

// What the engine's command line is made of, without its ports.
engine::EngineValues engine_values(const net::ProcessSpec& spec, const engine::EngineConfig& engine,
                                   Duration lease);

// Finds the program of the engine. The error says how to install it, or which key of a job file
// names it.
Result<std::string> find_engine_program(const engine::ForeignConfig& config, std::string_view key);

// The network interface with this address. Empty: there is none.
std::string interface_of(const std::string& host);

}  // namespace pdjob::worker
