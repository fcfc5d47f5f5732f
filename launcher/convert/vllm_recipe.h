// A recipe that vLLM publishes (https://github.com/vllm-project/recipes), with prefill and decode
// apart, as a job file of this program. The ordinary reader then reads that. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/plan/vllm_job.h"

namespace pdjob::launcher {

struct RecipeText {
  std::string name;  // Of the file, for messages.
  std::string text;
};

struct RecipeRequest {
  RecipeText recipe;    // Of the model.
  RecipeText strategy;  // pd_cluster.yaml
  std::string hardware;
  std::optional<uint32_t> nodes;  // Of the job; nothing: as few as possible.
  std::string variant = "default";
  std::vector<std::string> features;  // NAME, or NAME=MODE.
};

// kInvalidArgument: the message lists the errors, as whole lines.
Result<NativeJob> native_job_of_recipe(const RecipeRequest& request);

}  // namespace pdjob::launcher
