#include "launcher/compare/simulate_command.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include <unistd.h>

#include "common/exit_code.h"
#include "common/log.h"
#include "launcher/compare/comparison.h"
#include "launcher/compare/quickstart_model.h"
#include "launcher/compare/report_page.h"
#include "launcher/compare/report_text.h"
#include "launcher/compare/scaled_comparison.h"
#include "launcher/played/load_file.h"
#include "launcher/played/load_words.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

Error invalid(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

// A load, and the line that a report says of it.
struct Load {
  simulation::RequestTrace requests;
  std::string text;
};

Result<Load> load_of_file(const SimulateFlags& flags) {
  PDJOB_TRY(auto file,
            simulation::read_load_file(
                flags.trace,
                {.skip = flags.skip, .requests = flags.requests > 0 ? flags.requests : SIZE_MAX}));
  Load load{.requests = std::move(file.requests)};
  const Duration step = simulation::arrival_step(load.requests);
  if (step > Duration::zero()) {
    simulation::spread_arrivals(load.requests, step, flags.seed);
  }
  const simulation::TraceScale scale{.rate = flags.speed};
  for (simulation::TraceRequest& request : load.requests) {
    request = simulation::scaled(request, scale);
  }
  load.text = count_text(load.requests.size()) + " requests of " + flags.trace + " (" +
              file.format + ") in " + duration_text(load.requests.back().at);
  if (flags.skip > 0) {
    load.text += ", without the first " + count_text(flags.skip);
  }
  if (flags.speed != 1) {
    char times[32];
    std::snprintf(times, sizeof times, "%g", flags.speed);
    load.text += std::string(", ") + times + " times as fast";
  }
  if (step > Duration::zero()) {
    load.text += ", spread within the file's steps of " + time_text(seconds(step));
  }
  if (file.left_out > 0) {
    load.text += ", " + count_text(file.left_out) + " rows without an answer left out";
  }
  return load;
}

Result<Load> load_of_words(const SimulateFlags& flags) {
  simulation::LoadWords words;
  PDJOB_TRY(words.rate, simulation::parse_rate("--rate", flags.rate));
  PDJOB_TRY(words.prompt, simulation::parse_length("--prompt", flags.prompt));
  PDJOB_TRY(words.output, simulation::parse_length("--output", flags.output));
  words.arrivals =
      flags.arrivals == "even" ? simulation::Arrivals::kEven : simulation::Arrivals::kPoisson;
  words.requests = flags.requests > 0 ? flags.requests : words.requests;
  const std::string usual = flags.requests > 0 ? "8760h" : "2min";
  PDJOB_TRY(words.duration,
            simulation::parse_time("--duration", flags.duration.empty() ? usual : flags.duration));
  Load load;
  PDJOB_TRY(load.requests, simulation::make_load(words, flags.seed));
  load.text = count_text(load.requests.size()) + " requests in " +
              duration_text(load.requests.back().at) + ": " + flags.rate + " per second (" +
              flags.arrivals + "), prompts of " + flags.prompt + ", outputs of " + flags.output +
              " tokens";
  return load;
}

Result<Load> load_of(const SimulateFlags& flags) {
  if (!flags.trace.empty()) {
    return load_of_file(flags);
  }
  if (flags.rate.empty() || flags.prompt.empty() || flags.output.empty()) {
    return invalid(
        "give the load: --trace FILE, or all of --rate, --prompt and --output, such as "
        "--rate 20 --prompt 3000 --output 300");
  }
  return load_of_words(flags);
}

// Requests that no worker takes, because its sequences are too short.
Status check_lengths(const Load& load, SimulatedJob& job) {
  uint32_t rows = job.job.engine.rows_per_sequence;
  if (job.job.prefill_engine) {
    rows = std::min(rows, job.job.prefill_engine->rows_per_sequence);
  }
  const auto too_long = std::ranges::count_if(load.requests, [rows](const auto& request) {
    return uint64_t{request.prompt_tokens} + request.output_tokens > rows;
  });
  if (too_long == 0) {
    return ok();
  }
  uint64_t longest = 0;
  for (const auto& request : load.requests) {
    longest = std::max(longest, uint64_t{request.prompt_tokens} + request.output_tokens);
  }
  const std::string what =
      count_text(static_cast<uint64_t>(too_long)) + " of " + count_text(load.requests.size()) +
      " requests are longer than engine.tokens_per_sequence (" + count_text(rows) + ")";
  if (static_cast<size_t>(too_long) == load.requests.size()) {
    return invalid(what +
                   ", so a job would refuse them all: give --set "
                   "engine.tokens_per_sequence=" +
                   std::to_string(longest));
  }
  job.notes.push_back(what + " and are refused. The longest has " + count_text(longest) +
                      " tokens, prompt and output.");
  return ok();
}

}  // namespace

Status write_output(const std::string& option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? ok() : Status(invalid(option + ": " + path + " cannot be written"));
}

Result<SimulationAsked> simulation_asked(const JobConfig& config, const SimulateFlags& flags) {
  SimulationAsked asked{.seed = flags.seed, .source = config.source};
  PDJOB_TRY(asked.slo, parse_slo("--slo", flags.slo));
  EngineModel model = quickstart_model();
  if (!flags.model.empty()) {
    PDJOB_TRY(model, read_engine_model(flags.model));
  }
  asked.model_text = label(model) + (model.device.empty() ? "" : "; on " + model.device);
  PDJOB_TRY(const Duration start_time, simulation::parse_time("--start-time", flags.start_time));
  PDJOB_TRY(asked.job, simulated_job(config, model, start_time));
  if (flags.model.empty()) {
    asked.job.notes.insert(asked.job.notes.begin(),
                           "The times of steps are those of the built-in model, whatever model the "
                           "job has: give your own with --model.");
  }
  PDJOB_TRY(Load load, load_of(flags));
  PDJOB_TRY_STATUS(check_lengths(load, asked.job));
  asked.load = std::move(load.requests);
  asked.load_text = std::move(load.text);
  return asked;
}

int simulate_job(const JobConfig& config, const SimulateFlags& flags) {
  log::start("simulate", log::Level::kNothing);
  const auto refuse = [](const Error& error) {
    const bool ends = error.message.ends_with('\n');
    std::fprintf(stderr, "pdjob simulate: %s%s", error.message.c_str(), ends ? "" : "\n");
    return kExitUsage;
  };
  const auto asked = simulation_asked(config, flags);
  if (!asked) {
    return refuse(asked.error());
  }
  const bool tells = isatty(STDERR_FILENO) == 1;
  const auto tell = [&](const std::string& fleet) {
    if (tells) {
      std::fprintf(stderr, "simulating %s\n", fleet.c_str());
    }
  };
  const Comparison comparison =
      asked->job.job.launched ? compare_scaled(*asked, tell) : compare(*asked, tell);
  if (!flags.html.empty()) {
    if (const Status written = write_output("--html", flags.html, report_page(comparison));
        !written) {
      return refuse(written.error());
    }
  }
  std::fputs((flags.json ? report_json(comparison) : report_text(comparison)).c_str(), stdout);
  return kExitOk;
}

}  // namespace pdjob::launcher
