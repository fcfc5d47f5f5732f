#include "batch/stages/stage_command.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/config/shipped_files.h"
#include "net/loop/child_process.h"

namespace pdjob::batch {
namespace {

constexpr ShippedFile kStageTexts[] = {
#include "batch/stages/shipped_texts.inc"
};

std::string in_folder(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).string();
}

Error about(const StageConfig& stage, const std::string& message) {
  return {ErrorCode::kInvalidArgument, "stage " + stage.name + ": " + message};
}

Result<std::string> program_of(const StageConfig& stage, const std::string& name,
                               const std::string& folder) {
  const auto found =
      net::find_program(name.find('/') == std::string::npos ? name : in_folder(folder, name));
  if (!found) {
    return about(stage, found.error().message + ": install it, or name another program");
  }
  return *found;
}

}  // namespace

Result<std::vector<std::string>> stage_command(const StageConfig& stage,
                                               const std::string& folder) {
  if (!stage.python.empty()) {
    const size_t colon = stage.python.rfind(':');
    const std::string file = in_folder(folder, stage.python.substr(0, colon));
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) {
      return about(stage, "there is no file " + file);
    }
    PDJOB_TRY(std::string python, program_of(stage, "python3", folder));
    return std::vector<std::string>{std::move(python), "-c", std::string(kStageTexts[0].text), file,
                                    stage.python.substr(colon + 1)};
  }
  std::vector<std::string> words = stage.command;
  PDJOB_TRY(words.front(), program_of(stage, words.front(), folder));
  return words;
}

std::string stages_folder(const std::string& job_file) {
  std::error_code error;
  return std::filesystem::absolute(job_file, error).parent_path().string();
}

Status check_stages(const StagesConfig& stages, const std::string& folder) {
  for (const StageConfig* stage : stages.all()) {
    PDJOB_TRY_STATUS(stage_command(*stage, folder));
  }
  return ok();
}

}  // namespace pdjob::batch
