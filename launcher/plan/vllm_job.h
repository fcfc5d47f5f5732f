// The job file of vLLM's own `pdjob` (pull request 29649 of vllm-project/vllm) as a job file of
// this program. The ordinary reader then reads the translation, so keys, defaults and errors have
// one home. Pure.
#pragma once

#include <string>

#include "common/result.h"

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

}  // namespace pdjob::launcher
