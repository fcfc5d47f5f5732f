// The model of an engine from published measurements: result files of `vllm bench serve`, and
// summaries of aiperf. Each file is one run, and says less than a measurement would: lengths and
// concurrency are means. So a model needs several runs of one engine, and one of them with one
// request at a time. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/capacity/engine_model.h"

namespace pdjob::launcher {

enum class RunKind : uint8_t {
  kVllmBench,  // vllm bench serve --save-result
  kAiperf,     // profile_export_aiperf.json
};

// What a run says.
struct PublishedRun {
  std::string file;
  std::string model;
  std::string date;
  double concurrency = 0;    // Requests at a time, at most; 0: without a limit.
  double input_tokens = 0;   // Of a request, on average.
  double output_tokens = 0;  // The same.
  double ttft = 0;           // Seconds; the median.
  double itl = 0;            // Seconds; the median.
  double decoding = 0;       // Requests that decoded at a time, on average.
  // Of each request: its prompt, and its time to the first token. Only some files have them.
  std::vector<std::pair<double, double>> prompts;

  bool is_alone() const { return concurrency == 1; }
};

// kInvalidArgument: it is no such file, or it lacks a figure; the error names file and figure.
Result<PublishedRun> read_run(RunKind kind, const std::string& file, const std::string& text);

// kInvalidArgument: no run has one request at a time, or they are of several models.
Result<EngineModel> model_of_runs(RunKind kind, const std::vector<PublishedRun>& runs);

}  // namespace pdjob::launcher
