#include "launcher/cli/reference_arguments.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

#include <CLI/CLI.hpp>

#include "common/exit_code.h"
#include "launcher/cli/help_texts.h"
#include "launcher/cli/reference.h"
#include "launcher/plan/job_config.h"
#include "openai/headers.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kDescription =
    "pdjob serves a large language model as one job. Prefill computes prompts, decode generates "
    "tokens, and each has workers of its own. pdjob plans the job, starts its processes, restarts "
    "any that dies, and answers OpenAI's API. One YAML file describes the job.";

constexpr const char* kEnvironment =
    ".TP\n.B PDJOB_MODELS\nA folder with models, searched before ~/.cache/pdjob/models.\n"
    ".TP\n.B PDJOB_API_KEY\nThe key that \\fBpdjob batch\\fR and \\fBpdjob tune\\fR send, unless "
    "they have a "
    "\\-\\-key\\-file.\n"
    ".TP\n.B XDG_STATE_HOME\nHolds the folder pdjob, where launcher.state_dir is by default. "
    "Without it: ~/.local/state.\n"
    ".TP\n.B CUDA_VISIBLE_DEVICES\nThe GPUs that the launcher may give to workers.\n";

constexpr const char* kFiles =
    ".TP\n.I ~/.local/state/pdjob/JOB/launcher.json\nWhere the launcher of a running job "
    "answers.\n"
    ".TP\n.I ~/.local/state/pdjob/JOB/logs\nOne log file for each process of the job.\n";

// A text of several lines, so that no line is a request to roff.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool begins_line = escaped.empty() || escaped.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) {
      escaped += "\\&";
    }
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// As it stands, line by line.
std::string verbatim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
  const size_t end = text.find_last_not_of('\n') + 1;
  return begin >= end ? "" : ".PP\n.EX\n" + roff(text.substr(begin, end - begin)) + "\n.EE\n";
}

std::string options_page(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const bool is_help = option == command.get_help_ptr() && command.get_parent() != nullptr;
    if (option->get_group().empty() || is_help) {
      continue;
    }
    const bool positional = option->get_positional();
    text += ".TP\n\\fB" + roff(option->get_name(positional, !positional)) + "\\fR";
    if (!positional && option->get_items_expected_max() > 0 && !option->get_type_name().empty()) {
      text += " \\fI" + roff(option->get_type_name()) + "\\fR";
    }
    text += "\n" + roff(option->get_description()) + (option->get_required() ? " (required)" : "") +
            "\n";
  }
  return text;
}

std::string commands_page(const CLI::App& app, const std::string& prefix) {
  std::string text;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    const std::string name = prefix + command->get_name();
    text += ".SS " + roff("pdjob " + name) + "\n" + roff(command->get_description()) + ".\n" +
            options_page(*command) + verbatim(help_text_of(name)) +
            commands_page(*command, name + " ");
  }
  return text;
}

std::string manual_page(const CLI::App& app, const char* version) {
  const std::string_view help = help_text_of("");
  const size_t exit_codes = help.find("\nExit codes:");
  return ".TH PDJOB 1 \"\" \"pdjob " + roff(version) +
         "\" \"User Commands\"\n.SH NAME\npdjob \\- run one LLM job, with prefill and decode in "
         "separate workers\n.SH SYNOPSIS\n.B pdjob\n\\fB\\-\\-config\\fR \\fIFILE\\fR "
         "[\\fB\\-\\-set\\fR \\fIKEY=VALUE\\fR] ...\n.br\n.B pdjob\n\\fICOMMAND\\fR "
         "[\\fIOPTION\\fR] ...\n.SH DESCRIPTION\n" +
         roff(kDescription) + "\n.SH OPTIONS\n" + options_page(app) + ".SH COMMANDS\n" +
         commands_page(app, "") + ".SH EXAMPLES\n" + verbatim(help.substr(0, exit_codes)) +
         ".SH EXIT STATUS\n" + verbatim(help.substr(exit_codes)) + ".SH ENVIRONMENT\n" +
         kEnvironment + ".SH FILES\n" + kFiles +
         ".SH SEE ALSO\n\\fBpdjob reference\\fR prints every key of a job file.\n";
}

}  // namespace

ReferenceArguments::ReferenceArguments(CLI::App& app, const char* version, int& exit_code) {
  const std::map<std::string, std::string (*)()> pages = {{"job-file", config_reference},
                                                          {"headers", openai::header_reference},
                                                          {"metrics", metric_reference}};
  CLI::App* const command = app.add_subcommand(
      "reference", "Print a reference page, as Markdown; man: a manual page, for man(1)");
  command->add_option("PAGE", page_, "job-file, headers, metrics or man")
      ->check(CLI::IsMember({"job-file", "headers", "metrics", "man"}))
      ->capture_default_str();
  command->callback([this, pages, version, &app, &exit_code] {
    const auto page = pages.find(page_);
    std::fputs((page == pages.end() ? manual_page(app, version) : page->second()).c_str(), stdout);
    exit_code = kExitOk;
  });
}

}  // namespace pdjob::launcher
