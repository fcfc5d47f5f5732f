#include "launcher/tune/tune_arguments.h"

#include <CLI/CLI.hpp>

namespace pdjob::launcher {

TuneArguments::TuneArguments(CLI::App& app, const Places& places, int& exit_code)
    : places_(places) {
  CLI::App* const command =
      app.add_subcommand("tune", "Measure a running engine, for `pdjob simulate --model`");
  add_measure(command);
  command->callback([this, &exit_code] { exit_code = measure_engine(measure_, places_); });
}

void TuneArguments::add_measure(CLI::App* command) {
  TunedServers& servers = measure_.servers;
  auto* const measure =
      command
          ->add_option("--measure", servers.measure,
                       "The server of a worker or a router, of any make that has OpenAI's API; or "
                       "the name of a job that runs here: its workers")
          ->type_name("URL|JOB")
          ->required();
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
  command->add_option("--name", measure_.name, "What reports call the engine; default: its model")
      ->type_name("NAME");
  command->add_option("--device", measure_.device, "What reports say of the machine")
      ->type_name("TEXT");
  command->add_option("--out", measure_.out, "The file of the model")
      ->type_name("FILE")
      ->required();
}

}  // namespace pdjob::launcher
