// The command line of pdjob: jobs that run or are to run. Other commands: *_arguments.h.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <malloc.h>
#include <unistd.h>

#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "common/os/descriptors.h"
#include "common/os/first_process.h"
#include "launcher/cli/apply_command.h"
#include "launcher/cli/batch_arguments.h"
#include "launcher/cli/batch_command.h"
#include "launcher/cli/completion_arguments.h"
#include "launcher/cli/convert_command.h"
#include "launcher/cli/examples.h"
#include "launcher/cli/help_texts.h"
#include "launcher/cli/process_arguments.h"
#include "launcher/cli/reference_arguments.h"
#include "launcher/cli/scale_command.h"
#include "launcher/cli/stop_command.h"
#include "launcher/compare/simulate_arguments.h"
#include "launcher/doctor/doctor_command.h"
#include "launcher/job_folder.h"
#include "launcher/job_plan.h"
#include "launcher/launcher_process.h"
#include "launcher/look/links_command.h"
#include "launcher/look/logs_command.h"
#include "launcher/look/plan_command.h"
#include "launcher/look/status_command.h"
#include "launcher/look/top_command.h"
#include "launcher/plan/job_config.h"
#include "launcher/pool/pool_arguments.h"
#include "launcher/tune/tune_arguments.h"

namespace pdjob::launcher {

namespace {

// Returns the memory of a large request to the system when the request ends. By default glibc
// raises its threshold with each large block that is freed. A few bodies of 31 MB would then cost
// 100 MB for good.
void give_back_large_blocks() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
#endif
}

std::string jobs_text(const std::vector<std::string>& running) {
  if (running.empty()) {
    return "no job is running here";
  }
  std::string text = std::to_string(running.size()) + " jobs are running";
  for (const std::string& name : running) {
    text += (name == running.front() ? " (" : ", ") + name;
  }
  return text + ')';
}

// Prints the errors of a bad job file, which are whole lines.
int refuse(const Error& error) {
  std::fputs(error.message.c_str(), stderr);
  return kExitUsage;
}

// Reads a job file, and prints its warnings.
Result<JobConfig> job_of(const std::string& path, const Places& places,
                         const std::vector<std::string>& settings) {
  auto config = read_job_config(path, places, JobUse::kAsWritten, settings_of(settings));
  std::fputs(config ? config->warnings.c_str() : "", stderr);
  return config;
}

struct CommandLine {
  CLI::App app{"pdjob: runs one LLM job, with prefill and decode in separate workers.", "pdjob"};
  Places places = places_from_environment();
  int exit_code = kExitUsage;

  std::string config_path;
  std::vector<std::string> settings;
  std::string job_name;
  std::string which;  // A job's name or its file, as a plain word.
  bool json = false;
  bool watch = false;
  bool follow = false;
  bool now = false;
  bool strict = false;
  bool yaml = false;
  std::string process;
  std::string example = "quickstart";
  ScaleFlags scale;
  ApplyFlags apply;
  ConvertFlags convert;
  PlanFlags plan;
  std::optional<ProcessArguments> processes;
  std::optional<BatchArguments> batches;
  std::optional<SimulateArguments> simulations;
  std::optional<TuneArguments> tunes;
  std::optional<PoolArguments> pools;
  std::optional<ReferenceArguments> references;
  std::optional<CompletionArguments> completions;

  CommandLine() {
    app.set_version_flag("--version", "pdjob " PDJOB_VERSION);
    add_settings(app, app.add_option("FILE,--config", config_path, "The job file to run"));
    app.require_subcommand(0, 1);
    add_run();
    add_example();
    add_plan();
    add_convert();
    add_ps();
    add_top();
    add_status();
    add_links();
    add_nodes();
    add_logs();
    add_doctor();
    add_scale();
    add_changes();
    add_rollout();
    add_explain();
    add_stop();
    processes.emplace(app, places, exit_code);
    batches.emplace(app, places, exit_code);
    simulations.emplace(app, places, exit_code);
    tunes.emplace(app, places, exit_code);
    pools.emplace(app, places, exit_code);
    references.emplace(app, PDJOB_VERSION, exit_code);
    completions.emplace(app, exit_code);
    add_help_texts(app, "");
  }

  // Sets the texts of a command and of the commands below it.
  static void add_help_texts(CLI::App& command, const std::string& name) {
    command.footer(std::string(help_text_of(name)));
    for (CLI::App* below : command.get_subcommands({})) {
      add_help_texts(*below, name.empty() ? below->get_name() : name + " " + below->get_name());
    }
  }

  void add_settings(CLI::App& command, CLI::Option* config) {
    config->type_name("FILE");
    command
        .add_option("--set", settings,
                    "A key of the job file, over what the file says: decode.workers=2; repeatable")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false)
        ->needs(config);
  }

  void add_run() {
    CLI::App* const command = app.add_subcommand("run", "Run a job, as without this word");
    add_settings(*command,
                 command->add_option("FILE,--config", config_path, "The job file")->required());
    command->callback([this] { exit_code = run_file(); });
  }

  void add_example() {
    CLI::App* const command = app.add_subcommand("example", "Print a job file to begin with");
    command->add_option("NAME", example, "Which one")
        ->check(CLI::IsMember(example_names()))
        ->capture_default_str();
    command->callback([this] {
      std::fputs(example_text(example).c_str(), stdout);
      exit_code = kExitOk;
    });
  }

  void add_plan() {
    CLI::App* command = app.add_subcommand(
        "plan", "Show which processes a job would run, where and on which ports");
    add_settings(*command,
                 command->add_option("FILE,--config", config_path, "The job file")->required());
    command->add_flag("--json", json, "As JSON");
    auto* const assume =
        command
            ->add_option("--assume", plan.assume,
                         "Machines in place of those that are there: nodes, each with cores, "
                         "memory, gpus, labels, cluster and count (pdjob nodes --yaml writes it)")
            ->type_name("FILE");
    command
        ->add_flag(
            "--ask-nodes", plan.ask_nodes,
            "Ask the agents and Ray clusters of the job what they have, and wait for them. This "
            "runs what the file names: Ray's Python, and NCCL's library")
        ->excludes(assume);
    command->add_flag("--strict", strict, "Exit with code 3 if the plan has a warning");
    command->callback([this] { exit_code = plan_file(); });
  }

  int plan_file() {
    plan.form = json ? PlanForm::kJson : PlanForm::kText;
    plan.rule = strict ? PlanRule::kStrict : PlanRule::kTell;
    Places of_plan = places;
    of_plan.models_elsewhere = !plan.assume.empty();
    const auto config = job_of(config_path, of_plan, settings);
    return config ? show_plan(config->mode == Mode::kBatch ? batch_job(*config) : *config, plan)
                  : refuse(config.error());
  }

  void add_convert() {
    CLI::App* command =
        app.add_subcommand("convert", "Print a job of vLLM's as a job file of this pdjob");
    command->add_option("FILE", convert.file, "A file of vLLM's own pdjob");
    auto* const recipe =
        command->add_option("--recipe", convert.recipe, "Or a recipe that vLLM publishes")
            ->type_name("FILE");
    const auto of_recipe = [&](const char* name, auto& value, const char* help, const char* type) {
      return command->add_option(name, value, help)->type_name(type)->needs(recipe);
    };
    auto* const hardware =
        of_recipe("--hardware", convert.hardware, "The nodes, such as h200 or gb200", "NAME");
    recipe->needs(hardware);
    of_recipe("--nodes", convert.nodes, "How many; as few as possible without it", "N")
        ->check(CLI::Range(1, 1024));
    of_recipe("--variant", convert.variant, "The variant of the model", "NAME");
    of_recipe("--feature", convert.features, "A feature of the recipe; repeatable", "NAME[=MODE]");
    of_recipe("--strategy", convert.strategy,
              "The recipe's pd_cluster.yaml; without it, the one beside the recipe's folder",
              "FILE");
    command->callback([this] { exit_code = convert_job(convert, places); });
  }

  void add_status() {
    CLI::App* command = app.add_subcommand("status", "Show the processes of a running job");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->add_flag("--watch", watch, "Again and again, until Ctrl-C");
    command->callback([this] {
      exit_code = of_job("status", [this](const std::string& state_dir, const std::string& job) {
        return show_status(state_dir, job, json ? StatusForm::kJson : StatusForm::kText,
                           watch ? ShowMode::kWatch : ShowMode::kOnce);
      });
    });
  }

  void add_ps() {
    CLI::App* command = app.add_subcommand("ps", "List the jobs that run here");
    command->add_flag("--json", json, "As JSON");
    command->callback([this] {
      exit_code =
          show_jobs(default_state_dir(places), json ? StatusForm::kJson : StatusForm::kText);
    });
  }

  void add_top() {
    CLI::App* command = app.add_subcommand(
        "top", "Watch a running job: load, latencies and rates of each process, until Ctrl-C");
    add_which_job(command);
    command->callback([this] { exit_code = of_job("top", show_top); });
  }

  void add_links() {
    CLI::App* command =
        app.add_subcommand("links", "Show the KV links between the workers of a running job");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->add_flag("--watch", watch, "Again and again, until Ctrl-C");
    command->callback([this] {
      exit_code = of_job("links", [this](const std::string& state_dir, const std::string& job) {
        return show_links(state_dir, job, json ? StatusForm::kJson : StatusForm::kText,
                          watch ? ShowMode::kWatch : ShowMode::kOnce);
      });
    });
  }

  void add_nodes() {
    CLI::App* command = app.add_subcommand(
        "nodes", "Show the machines of a running job, what it reserves there, and what is free");
    add_which_job(command);
    auto* const as_json = command->add_flag("--json", json, "As JSON");
    command->add_flag("--yaml", yaml, "As a file of `pdjob plan --assume`")->excludes(as_json);
    command->callback([this] {
      exit_code = of_job("nodes", [this](const std::string& state_dir, const std::string& job) {
        return show_nodes(state_dir, job,
                          yaml   ? NodesForm::kYaml
                          : json ? NodesForm::kJson
                                 : NodesForm::kText);
      });
    });
  }

  void add_logs() {
    CLI::App* command = app.add_subcommand(
        "logs", "Print the log of a process of a running job, from whichever machine it runs on");
    command->add_option("PROCESS", process, "Its name in `pdjob status`; or launcher")->required();
    command->add_flag("-f,--follow", follow, "Its end, and what comes, until the job ends");
    add_which_job(command);
    command->callback([this] {
      exit_code = of_job("logs", [this](const std::string& state_dir, const std::string& job) {
        return show_log(state_dir, job, process, follow ? LogsMode::kFollow : LogsMode::kWhole);
      });
    });
  }

  void add_doctor() {
    CLI::App* command = app.add_subcommand(
        "doctor", "Look at this machine: has it what a job needs, and what mends it if not");
    command->add_flag("--json", json, "As JSON");
    command->callback(
        [this] { exit_code = examine_machine(json ? DoctorForm::kJson : DoctorForm::kText); });
  }

  void add_scale() {
    CLI::App* command = app.add_subcommand(
        "scale", "Change how many workers a running job has; without sizes: show them");
    command
        ->add_option("SIZES", scale.sizes,
                     "GROUP=WORKERS, such as decode=2 prefill=1; of several models, "
                     "NAME-decode=2; decode=auto: as the job file says. A word without = is the "
                     "job, as --job or --config would name it")
        ->type_name("GROUP=WORKERS");
    command->add_flag("--no-wait", scale.no_wait, "Do not wait until the new size serves");
    command
        ->add_option("--timeout", scale.timeout_s,
                     "Seconds to wait; after that the job goes on by itself")
        ->check(CLI::Range(1, 86400))
        ->capture_default_str();
    add_which_job(command, PlainWord::kIsOther);
    command->callback([this] {
      if (const std::string twice = take_job_of_sizes(); !twice.empty()) {
        exit_code = refuse({ErrorCode::kInvalidArgument, twice});
        return;
      }
      exit_code = of_job("scale", [this](const std::string& state_dir, const std::string& job) {
        return scale_job(state_dir, job, scale);
      });
    });
  }

  void add_changes() {
    const auto make = [this](const char* name, const char* what) {
      CLI::App* command = app.add_subcommand(name, what);
      add_settings(
          *command,
          command->add_option("FILE,--config", config_path, "The changed file")->required());
      return command;
    };
    make("diff", "Show what a changed job file would change in its running job")->callback([this] {
      apply.dry_run = true;
      exit_code = apply_file();
    });
    CLI::App* command =
        make("apply", "Change a running job to what its file says now, one worker after the other");
    command->add_flag("--dry-run", apply.dry_run, "Only show what would change, as `pdjob diff`");
    command->add_flag("--no-wait", apply.no_wait, "Do not wait until it is done");
    command
        ->add_option("--timeout", apply.timeout_s,
                     "Seconds to wait; after that the job goes on by itself")
        ->check(CLI::Range(1, 86400))
        ->capture_default_str();
    command->callback([this] { exit_code = apply_file(); });
  }

  int apply_file() {
    const auto config = job_of(config_path, places, settings);
    return config ? apply_to_job(*config, apply) : refuse(config.error());
  }

  void add_rollout() {
    CLI::App* command = app.add_subcommand("rollout", "Look at a job of mode rollout");
    CLI::App* status = command->add_subcommand(
        "status", "Show the weights that a running job serves with, and its last update");
    command->require_subcommand(1);
    add_which_job(status);
    status->add_flag("--json", json, "As JSON");
    status->callback([this] {
      exit_code =
          of_job("rollout status", [this](const std::string& state_dir, const std::string& job) {
            return show_rollout(state_dir, job, json ? StatusForm::kJson : StatusForm::kText);
          });
    });
  }

  void add_explain() {
    CLI::App* command = app.add_subcommand(
        "explain", "Show why a running job changed: its last decisions, with their reasons");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->callback([this] {
      exit_code = of_job("explain", [this](const std::string& state_dir, const std::string& job) {
        return show_decisions(state_dir, job, json ? StatusForm::kJson : StatusForm::kText);
      });
    });
  }

  void add_stop() {
    CLI::App* command = app.add_subcommand(
        "stop", "End a running job, as Ctrl-C in its terminal would, and wait for its end");
    command->add_flag("--now", now, "Do not let requests under way finish");
    add_which_job(command);
    command->callback([this] {
      exit_code = of_job("stop", [this](const std::string& state_dir, const std::string& job) {
        return stop_job(state_dir, job, now ? StopHow::kNow : StopHow::kDrain, places);
      });
    });
  }

  // A word of `scale` without = is its job. Returns what is wrong with several of them.
  std::string take_job_of_sizes() {
    const auto is_size = [](const std::string& word) { return word.find('=') != word.npos; };
    const auto words = std::ranges::stable_partition(scale.sizes, is_size);
    if (words.size() > 1) {
      return "pdjob scale: " + words[0] + " and " + words[1] +
             ": name one job, and sizes as GROUP=WORKERS\n";
    }
    which = words.empty() ? "" : words.front();
    scale.sizes.erase(words.begin(), words.end());
    return {};
  }

  enum class PlainWord { kIsJob, kIsOther };
  void add_which_job(CLI::App* command, PlainWord word = PlainWord::kIsJob) {
    if (word == PlainWord::kIsJob) {
      command->add_option("JOB", which, "The job's name or its file, as --job or --config");
    }
    auto* by_name =
        command->add_option("--job", job_name, "The job's name; not needed where one runs")
            ->type_name("NAME");
    auto* by_file = command
                        ->add_option("--config", config_path,
                                     "The job's file, if its state_dir is not the default")
                        ->type_name("FILE");
    by_name->excludes(by_file);
  }

  template <class Show>
  int of_job(const std::string& command, const Show& show) {
    if (!which.empty()) {
      if (!job_name.empty() || !config_path.empty()) {
        return refuse({ErrorCode::kInvalidArgument,
                       "pdjob " + command + ": " + which + " is one job too many\n"});
      }
      (is_job_name(which) ? job_name : config_path) = which;
    }
    if (config_path.empty()) {
      const std::vector<std::string> running = JobFolder::running(default_state_dir(places));
      if (job_name.empty() && running.size() != 1) {
        return refuse({ErrorCode::kInvalidArgument, "pdjob " + command + ": " + jobs_text(running) +
                                                        ": name one, as in `pdjob " + command +
                                                        " JOB`\n"});
      }
      return show(default_state_dir(places), job_name.empty() ? running.front() : job_name);
    }
    const auto place = read_job_place(config_path, places);
    return place ? show(place->state_dir, place->name) : refuse(place.error());
  }

  // The flags of a command, and the commands below it.
  static std::vector<std::string> words_of(const CLI::App& command) {
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
      known.push_back(option->get_name());
    }
    for (const CLI::App* subcommand :
         command.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
      known.push_back(subcommand->get_name());
    }
    return known;
  }

  // Says which flag or subcommand was meant by the first one that does not exist.
  void suggest() const {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
    }
    for (const std::string& word : app.remaining(true)) {
      if (suggested(word, words_of(*command))) {
        return;
      }
    }
  }

  static bool suggested(const std::string& word, const std::vector<std::string>& known) {
    const std::string meant = nearest_word(word, known);
    if (!meant.empty()) {
      std::fprintf(stderr, "pdjob: %s: did you mean %s?\n", word.c_str(), meant.c_str());
    }
    return !meant.empty();
  }

  // Runs the job file. A plain word that names no file may be a mistyped command.
  int run_file() {
    if (is_job_name(config_path) && access(config_path.c_str(), F_OK) != 0) {
      std::fprintf(stderr, "pdjob: there is no command %s, nor a job file of that name\n",
                   config_path.c_str());
      suggested(config_path, words_of(app));
      return kExitUsage;
    }
    const auto config =
        read_job_config(config_path, places, JobUse::kAsWritten, settings_of(settings));
    if (config && config->mode == Mode::kBatch) {
      return run_batch_command({.config = config_path, .settings = settings}, places);
    }
    std::fputs(config ? config->warnings.c_str() : "", stderr);
    return config ? run_job(*config, places) : refuse(config.error());
  }

  int run(int argc, char** argv) {
    give_back_large_blocks();
    try {
      app.parse(argc, argv);
    } catch (const CLI::ExtrasError& error) {
      suggest();
      return app.exit(error) == 0 ? kExitOk : kExitUsage;
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    if (!app.get_subcommands().empty()) {
      return exit_code;
    }
    if (config_path.empty()) {
      std::fputs(app.help().c_str(), stderr);
      return kExitUsage;
    }
    return run_file();
  }
};

}  // namespace

}  // namespace pdjob::launcher

int main(int argc, char** argv) {
  pdjob::reap_if_first_process();
  pdjob::raise_descriptor_limit();
  return pdjob::launcher::CommandLine().run(argc, argv);
}
