#include "launcher/tune/read_command.h"

#include <array>
#include <cstdio>
#include <utility>

#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "common/files/small_file.h"
#include "launcher/capacity/published_runs.h"
#include "launcher/look/plain_text.h"
#include "launcher/tune/model_output.h"

namespace pdjob::launcher {
namespace {

constexpr auto kKinds = std::to_array<std::pair<const char*, RunKind>>(
    {{"vllm-bench", RunKind::kVllmBench}, {"aiperf", RunKind::kAiperf}});
constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr size_t kFilesMax = 256;

RunKind kind_of(const std::string& word) {
  for (const auto& [name, kind] : kKinds) {
    if (word == name) {
      return kind;
    }
  }
  return RunKind::kVllmBench;
}

Result<EngineModel> read_model(const ReadFlags& flags) {
  if (flags.files.size() > kFilesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "at most " + std::to_string(kFilesMax) + " files are read"};
  }
  const RunKind kind = kind_of(flags.kind);
  std::vector<PublishedRun> runs;
  for (const std::string& path : flags.files) {
    const auto text = read_small_file(path, kFileBytesMax);
    if (!text) {
      return Error{ErrorCode::kInvalidArgument, path + ": " + text.error().message};
    }
    const std::string name = path.substr(path.rfind('/') + 1);
    PDJOB_TRY(PublishedRun run, read_run(kind, name, *text));
    runs.push_back(std::move(run));
  }
  PDJOB_TRY(EngineModel model, model_of_runs(kind, runs));
  model.name = flags.name.empty() ? model.name : flags.name;
  model.engine = flags.engine;
  model.device = flags.device;
  return model;
}

int refused_files(const Error& error) {
  constexpr size_t kShownMax = 2000;
  std::fprintf(stderr, "pdjob tune: %s\n", printable(error.message, kShownMax).c_str());
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace

std::vector<std::string> run_kinds() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kKinds) {
    names.emplace_back(name);
  }
  return names;
}

int read_measurements(const ReadFlags& flags) {
  const auto model = read_model(flags);
  if (!model) {
    return refused_files(model.error());
  }
  auto output = ModelOutput::open(flags.out);
  if (!output) {
    return refused_files(output.error());
  }
  if (const Status written = output->write(*model); !written) {
    return refused_files(written.error());
  }
  std::fputs(plain_text(model_summary(*model)).c_str(), stdout);
  std::printf("written: %s\n", flags.out.c_str());
  return kExitOk;
}

}  // namespace pdjob::launcher
