// Plays a recorded load to jobs on virtual time (trace_world.h), and says how many requests per
// second are served within the limits.
//
//   trace_simulation FILE [--OPTION VALUE]...
//
//   --job LIST        what is compared, once for each job: prefill=3,decode=1 or both=4. Further
//                     words: chunk (tokens of prompts in a step), batch (all tokens in a step:
//                     512), bypass (router.bypass_tokens),
//                     waiting and even (router.decode_prefills), local (tokens of prompts in a
//                     decode worker's step), spill (router.bypass_busy_requests), prefix (decode
//                     workers are chosen by prefix, too)
//   --rates LIST      multiples of the trace's own rate; a row for each
//   --best LOW,HIGH   instead: the highest rate between these at which --share of the requests are
//                     within the limits, to 2 %
//   --share X         0.9
//   --ttft S --itl S  the limits, in seconds
//   --divide N        prompts and outputs are so many times shorter; --divide-prompt N: prompts
//   --requests N      the first N of the file; --skip N: without the first N
//   --sequences N     of each worker: 16
//   --seed N
//   --step A,B,C,D,E  the nanoseconds of StepTime, in its order; --kv-row N: of a row's transfer
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/log.h"
#include "launcher/played/load_file.h"
#include "launcher/played/trace_world.h"

namespace pdjob::simulation {
namespace {

// SmolLM2-135M in q8_0, on one thread (docs/measurements/trace.md).
constexpr StepTime kMeasuredStep{.fixed = std::chrono::microseconds(3093),
                                 .per_prompt_token = std::chrono::microseconds(2223),
                                 .per_sequence = std::chrono::microseconds(4303),
                                 .per_prompt_read = std::chrono::nanoseconds(6167),
                                 .per_context_read = std::chrono::nanoseconds(7020)};
constexpr Duration kMeasuredKvRow = std::chrono::microseconds(5);

struct Arguments {
  std::string file;
  std::vector<std::string> jobs;
  std::vector<double> rates;
  std::vector<double> best;
  double share = 0.9;
  Slo slo;
  TraceScale scale;
  size_t requests = SIZE_MAX;
  size_t skip = 0;
  uint32_t sequences = 16;
  uint64_t seed = 1;
  StepTime step = kMeasuredStep;
  Duration kv_row = kMeasuredKvRow;
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "trace_simulation: %s\n", what.c_str());
  std::exit(2);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || value < 0) {
    fail("not a number: " + text);
  }
  return value;
}

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> values;
  for (const std::string& part : split(text)) {
    values.push_back(number_of(part));
  }
  return values;
}

Duration in_seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

StepTime step_of(const std::string& text) {
  const std::vector<double> parts = numbers_of(text);
  if (parts.size() != 5) {
    fail("--step wants five numbers");
  }
  const auto at = [&](size_t i) { return Duration(static_cast<int64_t>(parts[i])); };
  return {.fixed = at(0),
          .per_prompt_token = at(1),
          .per_sequence = at(2),
          .per_prompt_read = at(3),
          .per_context_read = at(4)};
}

Arguments arguments_of(int argc, char** argv) {
  Arguments all;
  if (argc < 2 || argc % 2 != 0) {
    fail("usage: trace_simulation FILE [--OPTION VALUE]...; the options are in its source");
  }
  all.file = argv[1];
  const auto whole = [](const std::string& text) { return static_cast<uint32_t>(number_of(text)); };
  const std::map<std::string, std::function<void(const std::string&)>> options{
      {"--job", [&](const std::string& text) { all.jobs.push_back(text); }},
      {"--rates", [&](const std::string& text) { all.rates = numbers_of(text); }},
      {"--best", [&](const std::string& text) { all.best = numbers_of(text); }},
      {"--share", [&](const std::string& text) { all.share = number_of(text); }},
      {"--ttft", [&](const std::string& text) { all.slo.ttft = in_seconds(number_of(text)); }},
      {"--itl", [&](const std::string& text) { all.slo.itl = in_seconds(number_of(text)); }},
      {"--divide",
       [&](const std::string& text) {
         all.scale.prompt_divisor = all.scale.output_divisor = whole(text);
       }},
      {"--divide-prompt", [&](const std::string& text) { all.scale.prompt_divisor = whole(text); }},
      {"--requests", [&](const std::string& text) { all.requests = whole(text); }},
      {"--skip", [&](const std::string& text) { all.skip = whole(text); }},
      {"--sequences", [&](const std::string& text) { all.sequences = whole(text); }},
      {"--seed", [&](const std::string& text) { all.seed = whole(text); }},
      {"--step", [&](const std::string& text) { all.step = step_of(text); }},
      {"--kv-row", [&](const std::string& text) { all.kv_row = Duration(whole(text)); }}};
  for (int i = 2; i + 1 < argc; i += 2) {
    const auto option = options.find(argv[i]);
    if (option == options.end()) {
      fail(std::string("no option ") + argv[i]);
    }
    option->second(argv[i + 1]);
  }
  if (all.scale.prompt_divisor == 0 || all.scale.output_divisor == 0 ||
      (!all.best.empty() && (all.best.size() != 2 || all.best[0] <= 0))) {
    fail("a divisor or a rate is 0");
  }
  return all;
}

TraceJob job_of(const std::string& text, const Arguments& all) {
  TraceJob job;
  job.engine = {.sequences = all.sequences, .rows_per_sequence = 8192, .batch_tokens = 512};
  job.step_time = all.step;
  job.kv_row_time = all.kv_row;
  job.prefill_config.requests_queued = job.decode_config.requests_queued = 1U << 16;
  job.router.requests_max = 1U << 20;
  job.router.queue_max = 1U << 20;
  job.router.queue_timeout = job.router.request_timeout = std::chrono::hours(1000);
  job.router.prefill_policy = router::PolicyKind::kPrefixAware;
  bool decode_keeps_prompts = false;
  for (const std::string& word : split(text)) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const auto value = static_cast<uint32_t>(
        number_of(equals == std::string::npos ? "" : word.substr(equals + 1)));
    if (key == "prefill") {
      job.prefill = value;
    } else if (key == "decode") {
      job.decode = value;
    } else if (key == "both") {
      job.both = value;
    } else if (key == "chunk") {
      job.prefill_config.chunk_tokens = value;
      job.decode_config.local_chunk_tokens = value;
    } else if (key == "batch") {
      job.engine.batch_tokens = value;
    } else if (key == "bypass") {
      job.router.bypass_tokens = value;
    } else if (key == "waiting") {
      job.router.decode_prefills = router::DecodePrefills::kWaiting;
    } else if (key == "even") {
      job.router.decode_prefills = router::DecodePrefills::kEven;
    } else if (key == "local") {
      job.decode_config.local_chunk_tokens = value;
    } else if (key == "spill") {
      job.router.bypass_busy_requests = value;
    } else if (key == "prefix") {
      decode_keeps_prompts = true;
    } else {
      fail("a job has no " + key);
    }
  }
  // Decode workers keep no rows that they fetched.
  job.router.decode_policy = job.both > 0 || decode_keeps_prompts
                                 ? router::PolicyKind::kPrefixAware
                                 : router::PolicyKind::kLeastLoaded;
  return job;
}

double milliseconds(Duration duration) { return 1e3 * seconds(duration); }

// Of the requests that were served. Requests with one token have no time between tokens. 0: none.
double quantile_ms(const std::vector<TraceOutcome>& outcomes, Duration TraceOutcome::* what,
                   double quantile) {
  std::vector<Duration> values;
  for (const TraceOutcome& outcome : outcomes) {
    if (outcome.served && outcome.*what > Duration::zero()) {
      values.push_back(outcome.*what);
    }
  }
  if (values.empty()) {
    return 0;
  }
  const auto at = static_cast<size_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return milliseconds(values[at]);
}

class Comparison {
 public:
  explicit Comparison(const Arguments& all, RequestTrace trace)
      : all_(all), trace_(std::move(trace)) {}

  Goodput row(const std::string& job, double rate) const {
    TraceRun run{.job = job_of(job, all_), .trace = trace_, .scale = all_.scale, .seed = all_.seed};
    run.scale.rate = rate;
    run.patience = 10 * all_.slo.ttft;
    const TraceResult result = play(run);
    const Goodput goodput = goodput_of(result, all_.slo);
    uint64_t prompt_tokens = 0;
    for (const TraceRequest& request : trace_) {
      prompt_tokens += scaled(request, run.scale).prompt_tokens;
    }
    const auto& outcomes = result.outcomes;
    std::printf(
        "| %s | %.3f | %.3f | %.1f %% | %.0f / %.0f | %.0f / %.0f / %.0f | %.0f %% |\n",
        job.c_str(), goodput.offered, goodput.good, 100 * goodput.share(),
        quantile_ms(outcomes, &TraceOutcome::ttft, 0.5),
        quantile_ms(outcomes, &TraceOutcome::ttft, 0.9),
        quantile_ms(outcomes, &TraceOutcome::itl, 0.5),
        quantile_ms(outcomes, &TraceOutcome::itl, 0.9),
        quantile_ms(outcomes, &TraceOutcome::gap_max, 0.9),
        100.0 * static_cast<double>(result.rows_reused) / static_cast<double>(prompt_tokens));
    std::fflush(stdout);
    return goodput;
  }

  // The share falls with the rate, except for noise.
  void best(const std::string& job) const {
    double low = all_.best[0];
    double high = all_.best[1];
    Goodput held;
    while (high / low > 1.02) {
      const double middle = std::sqrt(low * high);
      const Goodput goodput = row(job, middle);
      if (goodput.share() >= all_.share) {
        low = middle;
        held = goodput;
      } else {
        high = middle;
      }
    }
    std::printf("best: %s: %.3f requests/s offered, %.3f within the limits\n", job.c_str(),
                held.offered, held.good);
    std::fflush(stdout);
  }

 private:
  const Arguments& all_;
  const RequestTrace trace_;
};

RequestTrace trace_of(const Arguments& all) {
  auto read = read_load_file(all.file, {});
  if (!read) {
    fail(read.error().message);
  }
  RequestTrace trace = std::move(read->requests);
  spread_arrivals(trace, std::chrono::seconds(3), all.seed);
  trace.erase(trace.begin(),
              trace.begin() + static_cast<ptrdiff_t>(std::min(all.skip, trace.size())));
  trace.resize(std::min(all.requests, trace.size()));
  if (trace.empty()) {
    fail("no requests");
  }
  const Duration begin = trace.front().at;
  for (TraceRequest& request : trace) {
    request.at -= begin;
  }
  return trace;
}

}  // namespace
}  // namespace pdjob::simulation

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  pdjob::log::start("simulation", pdjob::log::Level::kNothing);
  const Arguments all = arguments_of(argc, argv);
  const Comparison comparison(all, trace_of(all));
  std::printf(
      "| job | requests/s | within the limits/s | share | TTFT p50 / p90, ms | "
      "ITL p50 / p90 / longest gap p90, ms | prompts from cache "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const std::string& job : all.jobs) {
    if (!all.best.empty()) {
      comparison.best(job);
    }
    for (const double rate : all.rates) {
      comparison.row(job, rate);
    }
  }
}
