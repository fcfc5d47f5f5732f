#include "launcher/cli/completion_arguments.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/exit_code.h"
#include "launcher/cli/examples.h"
#include "launcher/cli/reference_arguments.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kShells = "bash fish zsh";

// What a shell runs for words that only a running job knows.
constexpr std::string_view kJobs = "pdjob ps 2>/dev/null | awk 'NR > 1 { print $1 }'";
constexpr std::string_view kProcesses =
    "pdjob status 2>/dev/null | awk 'NF > 2 && $1 ~ /-[0-9]+$|^batch$/ { print $1 }'; echo "
    "launcher";
constexpr std::string_view kGroups = "pdjob scale 2>/dev/null | awk -F: '{ print $1 \"=\" }'";

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

// The words that a plain argument can be.
struct Plain {
  std::string words;         // Known beforehand.
  std::string_view command;  // Prints them; empty: none does.
  bool files = true;
};

bool has_plain(const CLI::App& app, const std::string& name) {
  return std::ranges::any_of(app.get_options(), [&](const CLI::Option* option) {
    return option->get_positional() && option->get_name(true, false) == name;
  });
}

Plain plain_of(const CLI::App& app) {
  const std::string& name = app.get_name();
  if (name == "example") {
    std::string words;
    for (const std::string& each : example_names()) {
      words += (words.empty() ? "" : " ") + each;
    }
    return {.words = words, .command = {}, .files = false};
  }
  if (name == "reference") {
    return {.words = kReferencePages, .command = {}, .files = false};
  }
  if (name == "completion") {
    return {.words = kShells, .command = {}, .files = false};
  }
  if (name == "logs") {
    return {.words = {}, .command = kProcesses, .files = false};
  }
  if (name == "scale") {
    return {.words = {}, .command = kGroups, .files = false};
  }
  return has_plain(app, "JOB") ? Plain{.words = {}, .command = kJobs, .files = true} : Plain{};
}

std::string bash_case(const CLI::App& command) {
  const Plain plain = plain_of(command);
  std::string text = "    " + command.get_name() + ") words=\"" + words_of(command) + "\"";
  if (!plain.files) {
    text += " files=";
  }
  if (!plain.words.empty()) {
    text += " plain=\"" + plain.words + "\"";
  } else if (!plain.command.empty()) {
    text += R"( plain="$()" + std::string(plain.command) + ")\"";
  }
  return text + " ;;\n";
}

std::string bash_script(const CLI::App& app) {
  std::string text =
      "_pdjob() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} command= words files=1 plain=\n"
      "  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n"
      "  case $command in\n";
  for (const CLI::App* command : commands_of(app)) {
    text += bash_case(*command);
  }
  text +=
      "    *) words=\"" + words_of(app) +
      "\" ;;\n"
      "  esac\n"
      "  local before=${COMP_WORDS[COMP_CWORD - 1]}\n"
      "  if [[ $before == --job ]]; then\n"
      "    words=$(" +
      std::string(kJobs) +
      ") plain=\n"
      "  elif [[ $before == --config ]]; then\n"
      "    words= plain= COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  elif [[ -n $command && -n $files && $word != -* ]]; then\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  fi\n"
      "  COMPREPLY+=($(compgen -W \"$plain $words\" -- \"$word\"))\n"
      "  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
      "  return 0\n"
      "}\n"
      "complete -o filenames -F _pdjob pdjob\n";
  return text;
}

// A text in single quotes.
std::string single_quoted(const std::string& text) {
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
      text += name == "job" ? " -x -a " + single_quoted("(" + std::string(kJobs) + ")") : " -r";
    }
    text += " -d " + single_quoted(option->get_description()) + "\n";
  }
  return text;
}

std::string when_of(const CLI::App& command) {
  return " -n '__fish_seen_subcommand_from " + command.get_name() + "'";
}

std::string fish_words(const CLI::App& command) {
  const Plain plain = plain_of(command);
  std::string words = plain.words;
  if (!plain.command.empty()) {
    words = "(";
    words.append(plain.command).append(")");
  }
  if (words.empty()) {
    return {};
  }
  return "complete -c pdjob" + when_of(command) + (plain.files ? "" : " -f") + " -a " +
         single_quoted(words) + "\n";
}

std::string fish_script(const CLI::App& app) {
  std::string text = fish_lines(app, " -n __fish_use_subcommand");
  for (const CLI::App* command : commands_of(app)) {
    text += "complete -c pdjob -n __fish_use_subcommand -a " + command->get_name() + " -d " +
            single_quoted(command->get_description()) + "\n" +
            fish_lines(*command, when_of(*command)) + fish_words(*command);
  }
  return text;
}

std::string script_of(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") {
    return fish_script(app);
  }
  // zsh reads scripts of bash.
  return (shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + bash_script(app);
}

}  // namespace

CompletionArguments::CompletionArguments(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes pdjob's command line");
  command->add_option("SHELL", shell_, "bash, fish or zsh")
      ->required()
      ->check([](const std::string& shell) {
        const bool known = shell == "bash" || shell == "fish" || shell == "zsh";
        return known ? std::string() : shell + " is none of " + kShells;
      })
      ->type_name("bash|fish|zsh");
  command->callback([this, &app, &exit_code] {
    std::fputs(script_of(app, shell_).c_str(), stdout);
    exit_code = kExitOk;
  });
}

}  // namespace pdjob::launcher
