// The command line of a stage's processes.
#pragma once

#include <string>
#include <vector>

#include "batch/config/stage_config.h"
#include "common/result.h"

namespace pdjob::batch {

// A `python` stage is run by python_stage.py, whose text is part of this binary. `folder`: that of
// the job file. kInvalidArgument: there is no such program or file; the message names the stage.
// Accesses the file system.
Result<std::vector<std::string>> stage_command(const StageConfig& stage, const std::string& folder);

// The folder of the job file, as an absolute path.
std::string stages_folder(const std::string& job_file);

// kInvalidArgument: a stage has no command line. For all stages, before anything starts.
Status check_stages(const StagesConfig& stages, const std::string& folder);

}  // namespace pdjob::batch
