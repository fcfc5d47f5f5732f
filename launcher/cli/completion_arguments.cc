#include "launcher/cli/completion_arguments.h"

#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/exit_code.h"

namespace pdjob::launcher {
namespace {

constexpr std::string_view kJobs = "pdjob ps 2>/dev/null | awk 'NR > 1 { print $1 }'";

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

// The long options, "--json", and their descriptions.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && !option->get_lnames().empty();
  });
}

std::string words_of(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : commands_of(app)) {
    words += command->get_name() + " ";
  }
  for (const CLI::Option* option : options_of(app)) {
    words += "--" + option->get_lnames().front() + " ";
  }
  words.pop_back();  // Each command has --help.
  return words;
}

std::string bash_script(const CLI::App& app) {
  std::string text =
      "_pdjob() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} command= words\n"
      "  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n"
      "  case $command in\n";
  for (const CLI::App* command : commands_of(app)) {
    text += "    " + command->get_name() + ") words=\"" + words_of(*command) + "\" ;;\n";
  }
  text += "    *) words=\"" + words_of(app) +
          "\" ;;\n"
          "  esac\n"
          "  if [[ ${COMP_WORDS[COMP_CWORD - 1]} == --job ]]; then\n"
          "    words=$(" +
          std::string(kJobs) +
          ")\n"
          "  elif [[ -n $command && $word != -* ]]; then\n"
          "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "  fi\n"
          "  COMPREPLY+=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -o filenames -F _pdjob pdjob\n";
  return text;
}

// A text in single quotes.
std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return quoted + "'";
}

std::string fish_lines(const CLI::App& app, const std::string& when) {
  std::string text;
  for (const CLI::Option* option : options_of(app)) {
    const std::string& name = option->get_lnames().front();
    text.append("complete -c pdjob").append(when).append(" -l ").append(name);
    if (option->get_items_expected_max() > 0) {
      text += name == "job" ? " -x -a " + quoted("(" + std::string(kJobs) + ")") : " -r";
    }
    text += " -d " + quoted(option->get_description()) + "\n";
  }
  return text;
}

std::string fish_script(const CLI::App& app) {
  std::string text = fish_lines(app, " -n __fish_use_subcommand");
  for (const CLI::App* command : commands_of(app)) {
    text += "complete -c pdjob -n __fish_use_subcommand -a " + command->get_name() + " -d " +
            quoted(command->get_description()) + "\n" +
            fish_lines(*command, " -n '__fish_seen_subcommand_from " + command->get_name() + "'");
  }
  return text;
}

std::string script_of(const CLI::App& app, Shell shell) {
  switch (shell) {
    case Shell::kBash:
      return bash_script(app);
    case Shell::kZsh:  // It reads scripts of bash.
      return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(app);
    case Shell::kFish:
      return fish_script(app);
  }
  return {};
}

}  // namespace

CompletionArguments::CompletionArguments(CLI::App& app, int& exit_code) {
  const std::map<std::string, Shell> shells = {
      {"bash", Shell::kBash}, {"zsh", Shell::kZsh}, {"fish", Shell::kFish}};
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes pdjob's command line");
  command->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->transform(CLI::CheckedTransformer(shells))
      ->type_name("");
  command->callback([this, &app, &exit_code] {
    std::fputs(script_of(app, shell_).c_str(), stdout);
    exit_code = kExitOk;
  });
}

}  // namespace pdjob::launcher
