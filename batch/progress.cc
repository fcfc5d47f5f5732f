#include "batch/progress.h"

#include <algorithm>
#include <cmath>

#include "common/json/json_writer.h"

namespace pdjob::batch {
namespace {

constexpr size_t kBarWidth = 20;

std::string rounded(double number) {
  return std::to_string(static_cast<int64_t>(std::llround(number)));
}

std::string bar(const Progress& progress) {
  const RowCounts& rows = progress.rows;
  const size_t filled =
      rows.total == 0 ? 0 : (rows.answered + rows.failed) * kBarWidth / rows.total;
  std::string text = "[";
  for (size_t i = 0; i < kBarWidth; ++i) {
    text += i < filled ? "=" : " ";
  }
  return text + "] ";
}

}  // namespace

void Rates::look(Progress& progress, Instant now) {
  const RowCounts& rows = progress.rows;
  const Sample newest{now, rows.answered + rows.failed, rows.completion_tokens};
  samples_[seen_ % kSamples] = newest;
  ++seen_;
  const Sample& oldest = samples_[seen_ <= kSamples ? 0 : seen_ % kSamples];
  const double passed = seconds(newest.at - oldest.at);
  if (passed > 0) {
    progress.rows_per_second = static_cast<double>(newest.rows - oldest.rows) / passed;
    progress.tokens_per_second = static_cast<double>(newest.tokens - oldest.tokens) / passed;
  }
}

std::string duration_text(double duration) {
  const auto whole = static_cast<int64_t>(std::ceil(duration));
  if (whole >= 3600) {
    return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
  }
  return whole >= 60 ? std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s"
                     : std::to_string(whole) + " s";
}

std::string progress_text(const Progress& progress, ProgressForm form) {
  const RowCounts& rows = progress.rows;
  const uint64_t ended = rows.answered + rows.failed;
  std::string text = form == ProgressForm::kBar ? bar(progress) : "";
  text += std::to_string(ended) + " of " + std::to_string(rows.total) + " rows, " +
          std::to_string(rows.failed) + " failed; ";
  if (!progress.trouble.empty()) {
    return text + progress.trouble;
  }
  text += rounded(progress.rows_per_second) + " rows/s, " + rounded(progress.tokens_per_second) +
          " tokens/s";
  if (progress.workers > 0) {
    text += "; " + std::to_string(progress.workers) + " workers";
  }
  if (progress.went_on > 0) {
    text += "; " + std::to_string(progress.went_on) + " went on at their token";
  }
  if (progress.rows_per_second > 0 && ended < rows.total) {
    text += "; " +
            duration_text(static_cast<double>(rows.total - ended) / progress.rows_per_second) +
            " left";
  }
  return text;
}

std::string stages_text(const std::vector<StageProgress>& stages) {
  std::string text;
  for (const StageProgress& stage : stages) {
    text += "stage " + stage.name + ": " + std::to_string(stage.waiting) + " rows wait, " +
            std::to_string(stage.under_way) + " under way; " + std::to_string(stage.restarts) +
            " restarts\n";
  }
  return text;
}

std::string status_json(const Progress& progress, const std::string& state,
                        const std::string& reason, int64_t updated_at) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("state").string(state);
  json.key("reason").string(reason);
  json.key("rows_total").integer(progress.rows.total);
  json.key("rows_answered").integer(progress.rows.answered);
  json.key("rows_failed").integer(progress.rows.failed);
  json.key("rows_in_flight").integer(progress.in_flight);
  json.key("rows_in_flight_max").integer(progress.window);
  json.key("workers").integer(progress.workers);
  json.key("rows_went_on").integer(progress.went_on);
  json.key("completion_tokens").integer(progress.rows.completion_tokens);
  json.key("rows_per_second").number(progress.rows_per_second);
  json.key("tokens_per_second").number(progress.tokens_per_second);
  json.key("trouble").string(progress.trouble);
  json.key("stages").string(stages_text(progress.stages));
  json.key("updated_at").integer(updated_at);
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::batch
