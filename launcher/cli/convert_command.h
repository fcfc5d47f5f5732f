// `pdjob convert`: prints a job of vLLM's as a job file: a file of vLLM's own `pdjob`, or a recipe
// that vLLM publishes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/model_config.h"

namespace pdjob::launcher {

struct ConvertFlags {
  std::string file;      // Of vLLM's own `pdjob`.
  std::string recipe;    // Or the recipe of a model; the other flags are for it.
  std::string strategy;  // Its pd_cluster.yaml; empty: beside the folder of the recipe.
  std::string hardware;
  std::optional<uint32_t> nodes;
  std::string variant = "default";
  std::vector<std::string> features;
};

// Returns the exit code (common/exit_code.h). It prints the translation even if that is refused,
// because the errors then name lines of it.
int convert_job(const ConvertFlags& flags, const Places& places);

}  // namespace pdjob::launcher
