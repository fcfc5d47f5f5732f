#include "launcher/cli/convert_command.h"

#include <cstdio>

#include "common/config/config_file.h"
#include "common/exit_code.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/vllm_job.h"

namespace pdjob::launcher {
namespace {

Result<std::string> converted(const std::string& path) {
  PDJOB_TRY(const std::string text, read_config_file(path));
  if (!is_vllm_job(text)) {
    return Error{ErrorCode::kInvalidArgument,
                 path +
                     ": is no file of vLLM's pdjob: it has no `scheduler` and no `general`, or "
                     "keys of a job file beside them\n"};
  }
  PDJOB_TRY(const NativeJob native, native_job(path, text));
  return native.yaml;
}

}  // namespace

int convert_job(const std::string& path, const Places& places) {
  const auto yaml = converted(path);
  if (!yaml) {
    std::fputs(yaml.error().message.c_str(), stderr);
    return kExitUsage;
  }
  std::fputs(yaml->c_str(), stdout);
  const auto config = read_job_config(path, places);
  std::fputs((config ? config->warnings : config.error().message).c_str(), stderr);
  return config ? kExitOk : kExitUsage;
}

}  // namespace pdjob::launcher
