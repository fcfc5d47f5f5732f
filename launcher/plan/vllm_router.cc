#include "launcher/plan/vllm_router.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/address_text.h"
#include "common/parse_number.h"
#include "launcher/plan/vllm_options.h"

namespace pdjob::launcher {
namespace {

constexpr uint16_t kPortOfVllm = 8021;

// The example file has these keys, and no code reads them.
constexpr auto kReadByNobody = std::to_array<const char*>(
    {"backend_port", "policy_type", "token_weight", "prefill_num_gpus", "decode_num_gpus",
     "prefill_dp", "decode_dp", "prefill_tp", "decode_tp"});

using Texts = std::vector<std::string>;

bool is_long_option(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

// The recipe of a router, and the options that the recipe sets itself.
struct Known {
  const char* recipe;
  Texts derived;
};

std::optional<Known> known_router(const Texts& words) {
  const auto has = [&](std::string_view option) {
    return std::ranges::find(words, option) != words.end();
  };
  const bool named = !words.empty() && words.front().ends_with("vllm-router");
  if (named || has("--vllm-pd-disaggregation")) {
    return Known{"vllm-router",
                 {"--vllm-pd-disaggregation", "--kv-connector", "--prefill", "--decode"}};
  }
  if (has("--prefiller-hosts") && has("--decoder-hosts")) {
    return Known{"toy-proxy",
                 {"--prefiller-hosts", "--prefiller-ports", "--decoder-hosts", "--decoder-ports"}};
  }
  return std::nullopt;
}

// The command's options, in the order of the file. `cargo run --release -- --port 1` has one.
struct Option {
  std::string name;
  Texts values;
};

std::vector<Option> options_of(const Texts& words) {
  std::vector<Option> options;
  for (const std::string& word : words) {
    if (word == "--") {
      options.clear();
      continue;
    }
    const size_t equals = word.find('=');
    if (is_long_option(word)) {
      options.push_back({.name = word.substr(0, equals)});
      if (equals != std::string::npos) {
        options.back().values.push_back(word.substr(equals + 1));
      }
    } else if (!options.empty()) {
      options.back().values.push_back(word);
    }
  }
  return options;
}

std::string value_of(const std::vector<Option>& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &Option::name);
  return found == options.end() || found->values.empty() ? "" : found->values.front();
}

// The numbers in $PREFILL_URL_2, ${PREFILL_HOST_1} and so on, for `stem` PREFILL.
std::vector<uint32_t> numbers_of(std::string_view command, const std::string& stem) {
  std::vector<uint32_t> numbers;
  for (const char* const kind : {"_HOST_", "_PORT_", "_URL_"}) {
    const std::string name = stem + kind;
    for (size_t at = command.find(name); at != std::string_view::npos;
         at = command.find(name, at + 1)) {
      const size_t begin = at + name.size();
      const size_t end = std::min(command.find_first_not_of("0123456789", begin), command.size());
      const bool dollar = at > 0 && (command[at - 1] == '$' || command[at - 1] == '{');
      const auto number = parse_number<uint32_t>(command.substr(begin, end - begin));
      if (dollar && number) {
        numbers.push_back(*number);
      }
    }
  }
  return numbers;
}

void check_peers(ConfigReader& in, const std::string& command, const std::string& stem,
                 const std::string& section, uint32_t replicas) {
  const std::vector<uint32_t> numbers = numbers_of(command, stem);
  const uint32_t last = numbers.empty() ? 0 : *std::ranges::max_element(numbers);
  const uint32_t first = numbers.empty() ? 1 : *std::ranges::min_element(numbers);
  const std::string have = section + ".replicas is " + std::to_string(replicas);
  if (first == 0 || last > replicas) {
    in.fail("command", "there is no worker " + std::to_string(first == 0 ? 0 : last) + " for $" +
                           stem + "_...: they begin with 1, and " + have);
  } else if (last < replicas) {
    in.warn("command", (last == 0 ? "names no worker of " : "does not name all workers of ") +
                           section + ", but " + have + ": the router is told of all of them");
  }
}

std::string listen_of(ConfigReader& in, const std::vector<Option>& options, uint16_t port) {
  const std::string written = value_of(options, "--port");
  if (written.empty()) {
    in.warn("command", "has no --port: the router listens on scheduler.port");
  } else if (written != "{PORT}") {
    const auto own = parse_number<uint16_t>(written);
    if (!own) {
      in.fail("command", "--port must be {PORT} or a number, got " + written);
    } else if (*own != port) {
      in.warn("command", "--port " + written + " is used, and scheduler.port is not: they differ");
      port = *own;
    }
  }
  std::string host = value_of(options, "--host");
  if (host.empty()) {
    in.warn("command", "has no --host: the router listens on 127.0.0.1, for this machine only");
    host = "127.0.0.1";
  }
  return address_text(host, port);
}

void use_recipe(ConfigReader& in, const Known& known, const Texts& words,
                const std::vector<Option>& options, VllmRouter& router) {
  router.recipe = known.recipe;
  const std::string& program = words.front();
  if (router.recipe == "toy-proxy") {
    router.program = program.ends_with(".py") ? "" : program;
    in.warn("command", "runs as recipe toy-proxy: set VLLM_TOY_PROXY to the path of its file");
  } else if (!program.ends_with("vllm-router")) {
    in.warn("command",
            "runs as recipe vllm-router, by the program of that name in $PATH, and not "
            "by " +
                program);
  } else if (program.find('/') != std::string::npos) {
    router.program = program;
  }
  for (const Option& option : options) {
    const bool derived = std::ranges::find(known.derived, option.name) != known.derived.end();
    if (derived || option.name == "--host" || option.name == "--port") {
      for (const std::string& value : option.values) {
        if (derived && value.find("://") != std::string::npos) {
          in.warn("command", value + " is not used: the router is told of the job's workers only");
        }
      }
      continue;
    }
    router.args.push_back(option.name);
    router.args.insert(router.args.end(), option.values.begin(), option.values.end());
  }
}

}  // namespace

VllmRouter read_vllm_router(ConfigReader& in, const VllmPeers& peers) {
  VllmRouter router;
  uint16_t port = kPortOfVllm;
  in.field("port", port, {"Where clients connect.", ""}, {1, 65535});
  std::string command;
  in.field("command", command, {"Starts the router."});
  for (const char* const key : kReadByNobody) {
    std::string ignored;
    in.field(key, ignored, {"No code reads it."});
    if (in.has(key)) {
      in.warn(key, "is not used; the vLLM pdjob does not read it either");
    }
  }
  const auto words = shell_words(command);
  if (!words || words->empty()) {
    in.fail("command", words ? "is missing: how is the router started?" : words.error().message);
    return router;
  }
  const std::vector<Option> options = options_of(*words);
  check_peers(in, command, "PREFILL", "prefill", peers.prefill);
  check_peers(in, command, "DECODE", "decode", peers.decode);
  router.listen = listen_of(in, options, port);
  if (const auto known = known_router(*words)) {
    use_recipe(in, *known, *words, options, router);
  } else {
    in.warn("command",
            "pdjob has no recipe for this router, and uses its own router in its place; to keep "
            "yours, write a recipe (docs/how-to/other-routers.md)");
  }
  return router;
}

}  // namespace pdjob::launcher
