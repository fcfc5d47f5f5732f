// ModelOutput: the file of a model that is not there until it is whole.
#pragma once

#include <string>

#include "common/result.h"
#include "launcher/capacity/engine_model.h"

namespace pdjob::launcher {

class ModelOutput {
 public:
  // Finds out that the file can be written before anything is measured. kInvalidArgument: it
  // cannot.
  static Result<ModelOutput> open(const std::string& path);
  ModelOutput(ModelOutput&& other) noexcept;
  ModelOutput(const ModelOutput&) = delete;
  ModelOutput& operator=(const ModelOutput&) = delete;
  ModelOutput& operator=(ModelOutput&&) = delete;
  ~ModelOutput();  // Without write() nothing is left.

  Status write(EngineModel model);

 private:
  explicit ModelOutput(std::string path) : path_(std::move(path)) {}
  std::string fresh() const { return path_ + ".new"; }

  std::string path_;  // Empty: moved from, or written.
};

// "2026-11-28", in UTC.
std::string date_text(int64_t unix_seconds);

// What a person wants to know of a new model: its times, and how far off it is.
std::string model_summary(const EngineModel& model);

}  // namespace pdjob::launcher
