#include "launcher/tune/model_output.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

std::string two_digits(unsigned value) { return (value < 10 ? "0" : "") + std::to_string(value); }

std::string fixed_text(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

// In the unit that has few digits.
std::string time_text(EngineModel::Time time) {
  const double nanoseconds = time.count();
  if (nanoseconds >= 1e6) {
    return fixed_text(nanoseconds / 1e6, 2) + " ms";
  }
  return nanoseconds >= 1e3 ? fixed_text(nanoseconds / 1e3, 2) + " us"
                            : fixed_text(nanoseconds, 2) + " ns";
}

}  // namespace

Result<ModelOutput> ModelOutput::open(const std::string& path) {
  ModelOutput output(path);
  std::ofstream file(output.fresh(), std::ios::binary | std::ios::trunc);
  if (!file.is_open()) {
    Error error = system_error("cannot write " + output.fresh(), ErrorCode::kInvalidArgument);
    output.path_.clear();
    return error;
  }
  return output;
}

ModelOutput::ModelOutput(ModelOutput&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ModelOutput::~ModelOutput() {
  if (!path_.empty()) {
    unlink(fresh().c_str());
  }
}

Status ModelOutput::write(const EngineModel& model) {
  std::ofstream file(fresh(), std::ios::binary | std::ios::trunc);
  file << engine_model_json(model);
  file.close();
  if (!file || std::rename(fresh().c_str(), path_.c_str()) != 0) {
    return system_error("cannot write " + path_);
  }
  path_.clear();
  return ok();
}

std::string date_text(int64_t unix_seconds) {
  const auto day = std::chrono::floor<std::chrono::days>(
      std::chrono::sys_seconds(std::chrono::seconds(unix_seconds)));
  const std::chrono::year_month_day date(day);
  return std::to_string(static_cast<int>(date.year())) + '-' +
         two_digits(static_cast<unsigned>(date.month())) + '-' +
         two_digits(static_cast<unsigned>(date.day()));
}

std::string model_summary(const EngineModel& model) {
  std::vector<std::vector<std::string>> rows = {
      {"TIME", "OF"},
      {time_text(model.step.fixed), "each step"},
      {time_text(model.step.per_prompt_token), "a token of a prompt"},
      {time_text(model.step.per_sequence), "a sequence that decodes"},
      {time_text(model.step.per_prompt_read), "a row that a prompt's token reads"},
      {time_text(model.step.per_context_read), "a row that a decoding sequence reads"},
      {time_text(model.per_request), "a request, outside of steps"}};
  if (model.kv.probes > 0) {
    rows.push_back({time_text(model.kv_per_transfer), "a KV transfer"});
    rows.push_back({time_text(model.kv_per_token), "a token of a KV transfer"});
  }
  std::string text = label(model) + '\n' + format_table(rows);
  for (const std::string& name : model.unmeasured) {
    text += "not measured: " + name + '\n';
  }
  for (const std::string& note : model.notes) {
    text += "note: " + note + '\n';
  }
  return text;
}

}  // namespace pdjob::launcher
