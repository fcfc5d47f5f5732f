// The job file of vLLM's own `pdjob` (pull request 29649 of vllm-project/vllm) as a job file of
// this program. The ordinary reader then reads the translation, so keys, defaults and errors have
// one home. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/plan/vllm_options.h"
#include "launcher/plan/vllm_router.h"

namespace pdjob::launcher {

// True if the text has the sections of such a file and none that only a native one has.
bool is_vllm_job(const std::string& text);

struct NativeJob {
  std::string yaml;
  // One line for each thing that the file leaves open, or that differs here. Each line has its
  // place in the file.
  std::string warnings;
};

// kInvalidArgument: the message lists the errors, in the form of config_reader.h. The job is named
// after the file.
Result<NativeJob> native_job(const std::string& source, const std::string& text);

// The engines of one role, as a native file has them.
struct NativeRole {
  uint32_t workers = 1;
  bool gpu = true;
  VllmSizes sizes;
  std::map<std::string, std::string> environment;
  std::vector<std::string> args;
};

struct NativeParts {
  std::string name;
  std::string model;
  std::string served_name;
  NativeRole prefill;
  NativeRole decode;
  VllmRouter router;
  uint32_t start_seconds = 600;
};

std::string native_text(const NativeParts& parts);

// A job's name, after the file that the job comes from.
std::string job_name_of(const std::string& source);

}  // namespace pdjob::launcher
