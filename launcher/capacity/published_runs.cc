#include "launcher/capacity/published_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>

#include "common/parse_number.h"
#include "launcher/capacity/step_fit.h"
#include "openai/json/json_edit.h"

namespace pdjob::launcher {
namespace {

using openai::JsonObject;

constexpr size_t kPromptsMax = 100'000;
constexpr size_t kLengthsMax = 64;  // Of prompts that are told apart.
constexpr size_t kDateBytes = 10;

// One scanned level of a file, whose errors name the file.
class Level {
 public:
  Level(const std::string& file, const JsonObject& object) : file_(file), object_(object) {}

  Error lacks(std::string_view name, const char* what = "has no number") const {
    return {ErrorCode::kInvalidArgument, file_ + ": " + std::string(name) + ' ' + what};
  }
  Result<double> number(std::string_view name) const {
    const auto value = parse_number<double>(object_.value(name));
    return value && std::isfinite(*value) ? Result<double>(*value) : Result<double>(lacks(name));
  }
  Result<double> above_zero(std::string_view name) const {
    PDJOB_TRY(const double value, number(name));
    return value > 0 ? Result<double>(value) : Result<double>(lacks(name, "is not above zero"));
  }
  std::string text(std::string_view name) const {
    return openai::json_string(object_.value(name)).value_or("");
  }

 private:
  const std::string& file_;
  const JsonObject& object_;
};

Error no_json(const std::string& file) {
  return {ErrorCode::kInvalidArgument, file + ": it is not one JSON object"};
}

// The numbers of a flat list; empty: it is something else.
std::vector<double> numbers_of(std::string_view list) {
  std::vector<double> numbers;
  if (!list.starts_with('[') || !list.ends_with(']')) {
    return numbers;
  }
  list = list.substr(1, list.size() - 2);
  while (!list.empty() && numbers.size() < kPromptsMax) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t begin = std::min(word.find_first_not_of(" \t\r\n"), word.size());
    word = word.substr(begin, word.find_last_not_of(" \t\r\n") + 1 - begin);
    const auto number = parse_number<double>(word);
    if (!number) {
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

constexpr auto kVllmNames = std::to_array<std::string_view>(
    {"date", "model_id", "max_concurrency", "completed", "total_input_tokens",
     "total_output_tokens", "request_throughput", "median_ttft_ms", "mean_tpot_ms", "median_itl_ms",
     "input_lens", "ttfts"});

Result<PublishedRun> read_vllm(const std::string& file, const std::string& text) {
  const auto object = JsonObject::scan(text, kVllmNames);
  if (!object) {
    return no_json(file);
  }
  const Level level(file, *object);
  PublishedRun run{.file = file, .model = level.text("model_id"), .date = level.text("date")};
  PDJOB_TRY(const double completed, level.above_zero("completed"));
  PDJOB_TRY(const double input, level.above_zero("total_input_tokens"));
  PDJOB_TRY(const double output, level.above_zero("total_output_tokens"));
  PDJOB_TRY(const double rate, level.above_zero("request_throughput"));
  PDJOB_TRY(const double ttft_ms, level.above_zero("median_ttft_ms"));
  PDJOB_TRY(const double tpot_ms, level.above_zero("mean_tpot_ms"));
  PDJOB_TRY(const double itl_ms, level.above_zero("median_itl_ms"));
  const auto limit = level.number("max_concurrency");
  run.concurrency = limit ? *limit : 0;  // null: without a limit.
  run.input_tokens = input / completed;
  run.output_tokens = output / completed;
  run.ttft = ttft_ms / 1e3;
  run.itl = itl_ms / 1e3;
  run.decoding = rate * tpot_ms / 1e3 * std::max(0.0, run.output_tokens - 1);
  const std::vector<double> lengths = numbers_of(object->value("input_lens"));
  const std::vector<double> ttfts = numbers_of(object->value("ttfts"));
  for (size_t i = 0; i < std::min(lengths.size(), ttfts.size()); ++i) {
    if (lengths[i] > 1 && ttfts[i] > 0) {  // A failed request has 0.
      run.prompts.emplace_back(lengths[i], ttfts[i]);
    }
  }
  return run;
}

constexpr auto kAiperfNames = std::to_array<std::string_view>(
    {"records", "input_config", "start_time", "request_throughput", "time_to_first_token",
     "inter_token_latency", "input_sequence_length", "output_sequence_length"});
constexpr auto kAiperfRecords = std::to_array<std::string_view>(
    {"request_throughput", "time_to_first_token", "ttft", "inter_token_latency",
     "input_sequence_length", "output_sequence_length"});
constexpr auto kStatistics = std::to_array<std::string_view>({"unit", "avg", "p50"});
constexpr auto kInputConfig = std::to_array<std::string_view>({"endpoint", "loadgen"});
constexpr auto kEndpoint = std::to_array<std::string_view>({"model_names"});
constexpr auto kLoadgen = std::to_array<std::string_view>({"concurrency"});

// One statistic of a metric. Times become seconds.
Result<double> statistic(const std::string& file, const JsonObject& records,
                         std::string_view metric, std::string_view name) {
  const std::string text(records.value(metric));
  const auto object = JsonObject::scan(text, kStatistics);
  if (!object) {
    return Error{ErrorCode::kInvalidArgument, file + ": " + std::string(metric) + " is missing"};
  }
  const Level level(file, *object);
  PDJOB_TRY(const double value, level.above_zero(name));
  const std::string unit = level.text("unit");
  return unit == "ms"   ? value / 1e3
         : unit == "us" ? value / 1e6
         : unit == "ns" ? value / 1e9
                        : value;
}

std::string first_text(std::string_view list) {
  const size_t begin = list.find('"');
  const size_t end =
      begin == std::string_view::npos ? begin : openai::end_of_json_string(list, begin);
  return end == std::string_view::npos
             ? std::string()
             : openai::json_string(list.substr(begin, end - begin)).value_or("");
}

// Newer summaries have their metrics at the top; older ones below `records`, with `ttft`.
Result<PublishedRun> read_aiperf(const std::string& file, const std::string& text) {
  const auto object = JsonObject::scan(text, kAiperfNames);
  if (!object) {
    return no_json(file);
  }
  const std::string below(object->value("records"));
  const auto records = JsonObject::scan(below.empty() ? text : below, kAiperfRecords);
  if (!records) {
    return no_json(file);
  }
  PublishedRun run{.file = file, .date = Level(file, *object).text("start_time")};
  const char* const ttft =
      records->value("time_to_first_token").empty() ? "ttft" : "time_to_first_token";
  PDJOB_TRY(run.input_tokens, statistic(file, *records, "input_sequence_length", "avg"));
  PDJOB_TRY(run.output_tokens, statistic(file, *records, "output_sequence_length", "avg"));
  PDJOB_TRY(run.ttft, statistic(file, *records, ttft, "p50"));
  PDJOB_TRY(run.itl, statistic(file, *records, "inter_token_latency", "p50"));
  PDJOB_TRY(const double mean_itl, statistic(file, *records, "inter_token_latency", "avg"));
  PDJOB_TRY(const double rate, statistic(file, *records, "request_throughput", "avg"));
  run.decoding = rate * mean_itl * std::max(0.0, run.output_tokens - 1);
  const std::string config(object->value("input_config"));
  if (const auto input = JsonObject::scan(config, kInputConfig)) {
    const std::string endpoint(input->value("endpoint"));
    const std::string loadgen(input->value("loadgen"));
    if (const auto named = JsonObject::scan(endpoint, kEndpoint)) {
      run.model = first_text(named->value("model_names"));
    }
    if (const auto load = JsonObject::scan(loadgen, kLoadgen)) {
      run.concurrency = parse_number<double>(load->value("concurrency")).value_or(0);
    }
  }
  return run;
}

StepWork prompt_work(double tokens) {
  return {.steps = 1,
          .prompt_tokens = tokens,
          .prompt_reads = tokens * (tokens + 1) / 2,
          .requests = 1};
}

std::string whole_text(double value) { return std::to_string(std::llround(value)); }

// Of requests that were alone: one probe for each length, or for the mean.
void add_prompts(const PublishedRun& run, std::vector<StepProbe>& probes) {
  std::map<double, std::vector<double>> by_length;
  for (const auto& [tokens, ttft] : run.prompts) {
    by_length[tokens].push_back(ttft);
  }
  if (by_length.empty() || by_length.size() > kLengthsMax) {
    by_length = {{run.input_tokens, {run.ttft}}};
  }
  for (auto& [tokens, ttfts] : by_length) {
    probes.push_back({.kind = ProbeKind::kPrefill,
                      .name = "prompt " + whole_text(tokens) + " of " + run.file,
                      .work = prompt_work(tokens),
                      .seconds = std::move(ttfts)});
  }
}

// The median step: few of its tokens wait for the prompts of others.
StepProbe decode_probe(const PublishedRun& run) {
  const double sequences = std::max(1.0, run.decoding);
  return {.kind = ProbeKind::kDecode,
          .name = "decode " + whole_text(sequences) + " of " + run.file,
          .work = {.steps = 1,
                   .sequences = sequences,
                   .context_reads = sequences * (run.input_tokens + run.output_tokens / 2)},
          .seconds = {run.itl}};
}

}  // namespace

Result<PublishedRun> read_run(RunKind kind, const std::string& file, const std::string& text) {
  return kind == RunKind::kVllmBench ? read_vllm(file, text) : read_aiperf(file, text);
}

Result<EngineModel> model_of_runs(RunKind kind, const std::vector<PublishedRun>& runs) {
  if (!std::ranges::any_of(runs, &PublishedRun::is_alone)) {
    return Error{ErrorCode::kInvalidArgument,
                 "no run has one request at a time (concurrency 1): in the others, the time to the "
                 "first token is mostly waiting"};
  }
  std::vector<StepProbe> probes;
  std::string files;
  for (const PublishedRun& run : runs) {
    if (run.model != runs.front().model) {
      return Error{ErrorCode::kInvalidArgument, run.file + ": it is of " + run.model + ", but " +
                                                    runs.front().file + " is of " +
                                                    runs.front().model};
    }
    if (run.is_alone()) {
      add_prompts(run, probes);
    }
    probes.push_back(decode_probe(run));
    files += (files.empty() ? "" : ", ") + run.file;
  }
  PDJOB_TRY(const StepFit fit, fit_steps(probes));
  EngineModel model = model_of(fit);
  model.name = runs.front().model;
  model.source = ModelSource::kRead;
  constexpr size_t kFilesShownMax = 400;
  model.read_from = files.substr(0, kFilesShownMax) +
                    (kind == RunKind::kVllmBench ? " (vllm-bench)" : " (aiperf)");
  model.date = runs.front().date.substr(0, kDateBytes);
  model.unmeasured.insert(model.unmeasured.end(), {"kv.per_transfer_us", "kv.per_token_us"});
  model.notes = {"lengths and concurrency are means of each run; the steps are medians",
                 "each prompt counts as one step: the files do not tell the engine's chunk",
                 "if prompts were in a prefix cache, their times are too short"};
  if (kind == RunKind::kVllmBench && runs.front().date.size() >= 8 &&
      runs.front().date.find_first_not_of("0123456789-") == std::string::npos) {
    model.date = runs.front().date.substr(0, 4) + '-' + runs.front().date.substr(4, 2) + '-' +
                 runs.front().date.substr(6, 2);  // "20261128-133000"
  }
  return model;
}

}  // namespace pdjob::launcher
