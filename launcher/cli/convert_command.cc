#include "launcher/cli/convert_command.h"

#include <cstdio>
#include <filesystem>

#include "common/config/config_file.h"
#include "common/exit_code.h"
#include "launcher/convert/vllm_recipe.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/vllm_job.h"

namespace pdjob::launcher {
namespace {

Result<NativeJob> converted_file(const std::string& path) {
  PDJOB_TRY(const std::string text, read_config_file(path));
  if (!is_vllm_job(text)) {
    return Error{ErrorCode::kInvalidArgument,
                 path +
                     ": is no file of vLLM's pdjob: it has no `scheduler` and no `general`, or "
                     "keys of a job file beside them\n"};
  }
  return native_job(path, text);
}

// Beside the folder of the recipe, or where a checkout of all recipes has it.
std::string strategy_of(const ConvertFlags& flags) {
  if (!flags.strategy.empty()) {
    return flags.strategy;
  }
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(flags.recipe).parent_path();
  const fs::path beside = (folder / ".." / "pd_cluster.yaml").lexically_normal();
  const fs::path in_checkout =
      (folder / ".." / ".." / "strategies" / "pd_cluster.yaml").lexically_normal();
  std::error_code unknown;
  return (!fs::exists(beside, unknown) && fs::exists(in_checkout, unknown) ? in_checkout : beside)
      .string();
}

Result<NativeJob> converted_recipe(const ConvertFlags& flags) {
  RecipeRequest request = {.recipe = {.name = flags.recipe},
                           .strategy = {.name = strategy_of(flags)},
                           .hardware = flags.hardware,
                           .nodes = flags.nodes,
                           .variant = flags.variant,
                           .features = flags.features};
  for (RecipeText* const file : {&request.recipe, &request.strategy}) {
    PDJOB_TRY(file->text, read_config_file(file->name));
  }
  return native_job_of_recipe(request);
}

Result<NativeJob> converted(const ConvertFlags& flags) {
  if (flags.file.empty() == flags.recipe.empty()) {
    return Error{ErrorCode::kInvalidArgument, "pdjob convert: give either FILE or --recipe FILE\n"};
  }
  if (flags.recipe.empty()) {
    return converted_file(flags.file);
  }
  return converted_recipe(flags);
}

}  // namespace

int convert_job(const ConvertFlags& flags, const Places& places) {
  const auto native = converted(flags);
  if (!native) {
    std::fputs(native.error().message.c_str(), stderr);
    return kExitUsage;
  }
  std::fputs(native->yaml.c_str(), stdout);
  std::fputs(native->warnings.c_str(), stderr);
  const std::string source = flags.file + flags.recipe + " (as `pdjob convert` prints it)";
  const auto config = parse_job_config(source, native->yaml, places);
  std::fputs((config ? config->warnings : config.error().message).c_str(), stderr);
  return config ? kExitOk : kExitUsage;
}

}  // namespace pdjob::launcher
