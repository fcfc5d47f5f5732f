// Stores of KV that are programs of other makes. A recipe beside this file says how such a program
// is started and watched. It has the form of an engine's recipe. The recipes of engines say how
// they use the store (`kv_stores`). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/recipes/foreign_config.h"

namespace pdjob::engine {

struct StoreProgram {
  std::string kind;               // "mooncake" or "lmcache"
  bool is_master = false;         // The one process of a job that all others ask.
  std::string folder;             // Where its programs are; empty: in PATH.
  std::vector<std::string> args;  // Appended to those of its recipe, unless it is the master.
};

// All require: it is such a kind.
bool has_master(std::string_view kind);
uint16_t usual_store_port(std::string_view kind);
// Where the stores of this kind serve the engines of their own machine only.
bool serves_own_machine(std::string_view kind);

// The program in the form of an engine of another make.
ForeignConfig program_of(const StoreProgram& store);

}  // namespace pdjob::engine
