#include "launcher/compare/simulate_arguments.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "common/exit_code.h"
#include "launcher/played/load_words.h"

namespace pdjob::launcher {

SimulateArguments::SimulateArguments(CLI::App& app, const Places& places, int& exit_code) {
  CLI::App* const command = app.add_subcommand(
      "simulate", "Play a load to a job without its machines: latencies, and what PD gains");
  options_.add_to(command);
  command->add_option("--html", options_.flags.html, "Write a page with plots, too")
      ->type_name("FILE");
  command
      ->add_option("--start-time", options_.flags.start_time,
                   "If the job scales: how long a new worker takes to start")
      ->type_name("TIME")
      ->capture_default_str();
  command->callback([this, &places, &exit_code] {
    const auto config = options_.job(places);
    exit_code = config ? simulate_job(*config, options_.flags) : kExitUsage;
  });
}

void SimulationOptions::add_to(CLI::App* command) {
  auto* const file =
      command->add_option("FILE,--config", job_file, "The job file")->type_name("FILE");
  command
      ->add_option("--set", settings,
                   "A key of the job file, over what the file says: decode.workers=2; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(file);
  command
      ->add_option(
          "--model", flags.model,
          "The times of the engine, as `pdjob tune --measure` writes them; without it, the "
          "measured ones of the quickstart's model on one core")
      ->type_name("FILE");
  add_load(command);
  command
      ->add_option("--slo", flags.slo,
                   "What a request should keep: the time to its first token, and the mean time "
                   "between two")
      ->type_name("ttft=TIME,itl=TIME")
      ->capture_default_str();
  command->add_option("--seed", flags.seed, "Equal seeds give equal output")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", flags.json, "As JSON");
}

void SimulationOptions::add_load(CLI::App* command) {
  auto* const trace =
      command
          ->add_option("--trace", flags.trace,
                       "A recorded load: JSON lines of Mooncake, or a table of Azure or BurstGPT")
          ->type_name("FILE");
  command->add_option("--skip", flags.skip, "Rows of the file that are left out")
      ->type_name("N")
      ->needs(trace);
  command->add_option("--speed", flags.speed, "The file's requests come so many times as fast")
      ->type_name("X")
      ->check(CLI::Range(0.0001, 10000.0))
      ->needs(trace);
  const auto words = [&](const char* name, std::string& value, const char* help, const char* type) {
    return command->add_option(name, value, help)->type_name(type)->excludes(trace);
  };
  words("--rate", flags.rate,
        "Or in words. Requests per second: 20, a ramp 5..40@10min, or phases that repeat, "
        "5@50s,50@10s",
        "RATE");
  words("--prompt", flags.prompt,
        "Tokens of a prompt: 3000, 100..500 (uniform), 3000~0.5 (lognormal: mean and spread)",
        "LENGTH");
  words("--output", flags.output, "Tokens of an answer, in the same way", "LENGTH");
  words("--duration", flags.duration, "How long requests come; default 2min, or until --requests",
        "TIME");
  words("--arrivals", flags.arrivals, "poisson: at random; even: at equal distances", "WORD")
      ->check(CLI::IsMember({"poisson", "even"}))
      ->capture_default_str();
  command->add_option("--requests", flags.requests, "At most so many requests")
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, simulation::kLoadRequestsMax));
}

std::optional<JobConfig> SimulationOptions::job(const Places& places) const {
  if (job_file.empty()) {
    std::fputs("name the job file: --config FILE\n", stderr);
    return std::nullopt;
  }
  Places nowhere = places;
  nowhere.models_here = false;  // Nothing of the model's file is needed.
  auto config = read_job_config(job_file, nowhere, JobUse::kAsWritten, settings_of(settings));
  if (!config) {
    std::fputs(config.error().message.c_str(), stderr);
    return std::nullopt;
  }
  std::fputs(config->warnings.c_str(), stderr);
  return *std::move(config);
}

}  // namespace pdjob::launcher
