#include "launcher/tune/tune_arguments.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "common/exit_code.h"

namespace pdjob::launcher {

TuneArguments::TuneArguments(CLI::App& app, const Places& places, int& exit_code)
    : places_(places) {
  CLI::App* const command = app.add_subcommand(
      "tune", "Write the model of an engine, measured or read, for `pdjob simulate --model`");
  add_measure(command);
  add_read(command);
  command->add_option("--name", read_.name, "What reports call the engine; default: its model")
      ->type_name("NAME");
  command->add_option("--device", read_.device, "What reports say of the machine")
      ->type_name("TEXT");
  command->add_option("--out", read_.out, "The file of the model")->type_name("FILE")->required();
  command->callback([this, &exit_code] { exit_code = run(); });
}

int TuneArguments::run() {
  if (!read_.files.empty()) {
    return read_measurements(read_);
  }
  if (measure_.servers.measure.empty()) {
    std::fputs("pdjob tune: give --measure URL or --read FILE; see `pdjob tune --help`\n", stderr);
    return kExitUsage;
  }
  measure_.name = read_.name;
  measure_.device = read_.device;
  measure_.out = read_.out;
  return measure_engine(measure_, places_);
}

void TuneArguments::add_read(CLI::App* command) {
  auto* const files =
      command
          ->add_option(
              "--read", read_.files,
              "Published measurements in place of your own; a file for each run, repeatable")
          ->type_name("FILE")
          ->excludes("--measure");
  auto* const kind = command
                         ->add_option("--kind", read_.kind,
                                      "What wrote the files: vllm-bench (vllm bench serve "
                                      "--save-result) or aiperf (profile_export_aiperf.json)")
                         ->type_name("KIND")
                         ->check(CLI::IsMember(run_kinds()))
                         ->needs(files);
  files->needs(kind);
  command
      ->add_option("--engine", read_.engine, "The engine and its version, which files do not tell")
      ->type_name("TEXT")
      ->needs(files);
}

void TuneArguments::add_measure(CLI::App* command) {
  TunedServers& servers = measure_.servers;
  auto* const measure =
      command
          ->add_option("--measure", servers.measure,
                       "The server of a worker or a router, of any make that has OpenAI's API; or "
                       "the name of a job that runs here: its workers")
          ->type_name("URL|JOB");
  auto* const decode =
      command
          ->add_option("--decode", servers.decode,
                       "A decode worker beside the prefill worker of --measure: it decodes, and KV "
                       "moves between the two")
          ->type_name("URL")
          ->needs(measure);
  command
      ->add_option("--key-file", servers.key_file,
                   "Holds the API key of --measure; default: that of the environment variable "
                   "PDJOB_API_KEY")
      ->type_name("FILE")
      ->needs(measure);
  command
      ->add_option("--decode-key-file", servers.decode_key_file,
                   "The same of --decode; default: the key of --measure")
      ->type_name("FILE")
      ->needs(decode);
  command
      ->add_option("--model", measure_.model,
                   "The model's name in the API; not needed if there is one")
      ->type_name("NAME");
  command
      ->add_option("--chunk", measure_.chunk_tokens,
                   "Tokens of prompts in one step of the engine: prefill.chunk_tokens of pdjob, "
                   "max_num_batched_tokens of vLLM; default: a prompt is one step")
      ->type_name("N")
      ->check(CLI::Range(1U, 1U << 20));
  command->add_option("--seconds", measure_.seconds, "How long it may take")
      ->type_name("N")
      ->check(CLI::Range(5U, 86400U))
      ->capture_default_str();
}

}  // namespace pdjob::launcher
