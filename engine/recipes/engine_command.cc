#include "engine/recipes/engine_command.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "common/parse_number.h"
#include "engine/recipes/options.h"

namespace pdjob::engine {
namespace {

using Texts = std::vector<std::string>;

std::optional<std::string> users_variable(const Texts& env, std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('=') + 1);
  for (const std::string& own : env) {
    if (own.starts_with(name)) {
      return own.substr(name.size());
    }
  }
  return std::nullopt;
}

bool has_feature(const ForeignConfig& config, const RecipeFeature& feature) {
  return std::ranges::find(config.features, feature.name) != config.features.end();
}

// The recipe's additions for this role and device.
struct Template {
  Texts args;
  Texts environment;

  // Options of the part take the place of what is there.
  void replace(const RecipePart& part) {
    for (const std::string& option : part.args) {
      for (size_t i = 0; is_option(option) && i < args.size(); ++i) {
        if (is_option(args[i]) && option_name(args[i]) == option_name(option)) {
          const auto at = args.begin() + static_cast<std::ptrdiff_t>(i);
          args.erase(at, at + static_cast<std::ptrdiff_t>(option_texts(args, i)));
        }
      }
    }
    add(part);
  }

  void add(const RecipePart& part) {
    args.insert(args.end(), part.args.begin(), part.args.end());
    environment.insert(environment.end(), part.environment.begin(), part.environment.end());
  }
};

RecipePart part_of(std::string_view role, const RecipePart& prefill, const RecipePart& decode,
                   const RecipePart& both) {
  return role == "prefill" ? prefill : role == "decode" ? decode : both;
}

Template template_of(const EngineRecipe& recipe, const ForeignConfig& config,
                     const EngineValues& values) {
  Template all{.args = recipe.command, .environment = recipe.environment};
  all.add(part_of(values.role, recipe.prefill, recipe.decode, recipe.both));
  all.add(values.gpu ? recipe.gpu : recipe.cpu);
  if (values.gpu_percent < 100) {
    all.add(recipe.gpu_part);
  }
  const Texts sizes = parallel_args(shape_wish(recipe, config, values.gpu));
  all.args.insert(all.args.end(), sizes.begin(), sizes.end());
  if (values.shape.nodes > 1) {
    all.add(recipe.nodes);
  }
  if (values.part > 0) {
    all.add(recipe.follower);
  }
  if (!values.nics.empty()) {
    all.add(recipe.near);
  }
  if (recipe.publishes) {
    all.add(recipe.kv_events.part);
  }
  if (values.changes_weights) {
    all.environment.insert(all.environment.end(), recipe.weights.environment.begin(),
                           recipe.weights.environment.end());
  }
  if (const RecipeStore* const store = recipe.store(values.store.kind)) {
    all.replace(part_of(values.role, store->prefill, store->decode, store->both));
  }
  for (const RecipeFeature& feature : recipe.features) {
    if (has_feature(config, feature)) {
      all.add(part_of(values.role, feature.prefill, feature.decode, feature.both));
    }
  }
  return all;
}

// "mlx5_0:1,mlx5_1:1"
std::string first_ports(std::string_view nics) {
  std::string text;
  for (const char c : nics) {
    text.append(c == ',' ? ":1" : "").push_back(c);
  }
  return text.empty() ? text : text + ":1";
}

// "8" or "0.5"; a store gets no more than it was given.
std::string gibibytes(uint64_t bytes) {
  constexpr uint64_t kMib = 1 << 20;
  constexpr uint64_t kMibOfGib = 1024;
  const uint64_t thousandths = bytes / kMib * 1000 / kMibOfGib;
  std::string fraction = std::to_string(1000 + thousandths % 1000).substr(1);
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return std::to_string(thousandths / 1000) + (fraction.empty() ? "" : "." + fraction);
}

// Nine tenths, with three decimals: the rest is for what an engine does not count, such as the
// driver's own memory for it.
std::string gpu_memory(uint32_t percent) {
  std::string text = std::to_string(1000 + 9 * percent).substr(1);
  text.erase(text.find_last_not_of('0') + 1);
  return "0." + text;
}

Words words_of(const EngineRecipe& recipe, const ForeignConfig& config,
               const EngineValues& values) {
  const auto lease = std::chrono::ceil<std::chrono::seconds>(values.lease).count();
  const EngineShape& shape = values.shape;
  Words words = {{"model", values.model},
                 {"served_name", values.served_name},
                 {"name", values.name},
                 {"role", values.role},
                 {"host", values.host},
                 {"engine_id", values.engine_id},
                 {"lease_seconds", std::to_string(lease)},
                 {"threads", std::to_string(values.threads)},
                 {"device", values.gpu ? "cuda" : "cpu"},
                 {"gpu_memory", gpu_memory(values.gpu_percent)},
                 {"tensor", std::to_string(shape.tensor)},
                 {"pipeline", std::to_string(shape.pipeline)},
                 {"data", std::to_string(shape.data)},
                 {"gpus", std::to_string(shape.gpus)},
                 {"nodes", std::to_string(shape.nodes)},
                 {"node_rank", std::to_string(values.part)},
                 {"head_host", values.head_host.empty() ? values.host : values.head_host},
                 {"interface", values.interface},
                 {"nics", values.nics},
                 {"nic_ports", first_ports(values.nics)},
                 {"store_host", values.store.host},
                 {"store_port", std::to_string(values.store.port)},
                 {"store_transport", values.store.transport},
                 {"store_bytes", std::to_string(values.store.memory_bytes)},
                 {"store_gb", gibibytes(values.store.memory_bytes)},
                 {"store_file", values.store_file}};
  for (const RecipeFeature& feature : recipe.features) {
    words.insert_or_assign(feature.name, has_feature(config, feature) ? feature.text : "");
  }
  const std::vector<PortWord> ports = port_words(recipe, shape);
  for (size_t i = 0; i < values.ports.size(); ++i) {
    words.insert_or_assign(ports.at(i).word, std::to_string(values.ports[i]));
  }
  return words;
}

// Takes out of the template what the user sets. Where that stood for one word, the word becomes the
// user's.
class Merge {
 public:
  Merge(Template all, const ForeignConfig& config, Words words)
      : all_(std::move(all)), config_(config), words_(std::move(words)) {
    take_out_options();
    take_out_variables();
  }

  Texts args() const { return filled(all_.args, config_.args); }
  Texts environment() const { return filled(all_.environment, config_.env); }
  const Words& words() const { return words_; }
  Texts warnings() const {
    Texts texts;
    for (const auto& [where, what] : replaced_) {
      texts.emplace_back(where).append(" sets ").append(what).append(
          ", which pdjob sets, too: yours is used");
    }
    return texts;
  }

 private:
  Texts filled(const Texts& templates, const Texts& appended) const {
    Texts texts;
    for (const Texts* const some : {&templates, &appended}) {
      for (const std::string& text : *some) {
        texts.push_back(fill_words(text, words_));
      }
    }
    return texts;
  }

  // Makes write lists of NICs in different forms, so those stay as they are.
  void set_word(std::string_view written, const std::string& value) {
    if (const std::string_view word = only_word(written);
        !word.empty() && !words_.contains(only_word(value)) && !is_nic_word(word)) {
      words_.insert_or_assign(std::string(word), value);
    }
  }

  void take_out_options() {
    Texts kept;
    for (size_t i = 0; i < all_.args.size(); ++i) {
      const auto own =
          is_option(all_.args[i]) ? option_of(config_.args, all_.args[i]) : std::nullopt;
      if (!own) {
        kept.push_back(all_.args[i]);
        continue;
      }
      const std::string value = option_value(all_.args, i);
      replaced_.emplace_back("engine.args", option_name(all_.args[i]));
      set_word(value, *own);
      i += option_texts(all_.args, i) - 1;
    }
    all_.args = std::move(kept);
  }

  void take_out_variables() {
    std::erase_if(all_.environment, [this](const std::string& variable) {
      const auto own = users_variable(config_.env, variable);
      if (own) {
        const size_t equals = variable.find('=');
        replaced_.emplace_back("engine.env", variable.substr(0, equals));
        set_word(std::string_view(variable).substr(equals + 1), *own);
      }
      return own.has_value();
    });
  }

  Template all_;
  const ForeignConfig& config_;
  Words words_;
  std::vector<std::pair<std::string, std::string>> replaced_;  // Where, and what.
};

std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string all = "'";
  for (const char c : text) {
    all += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return all + "'";
}

// A variable of the user's may hold a secret, such as HF_TOKEN or a URL with a password.
bool is_secret(const std::string& variable, const std::string& value) {
  std::string name = variable;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value.find('@') != std::string::npos ||
         std::ranges::any_of(
             std::to_array<std::string_view>(
                 {"KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH"}),
             [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

}  // namespace

uint16_t EngineCommand::port_of(std::string_view word) const {
  const auto found = words.find(word);
  return found == words.end() ? 0 : parse_number<uint16_t>(found->second).value_or(0);
}

EngineCommand engine_command(const EngineRecipe& recipe, const ForeignConfig& config,
                             const EngineValues& values) {
  const Merge merge(template_of(recipe, config, values), config, words_of(recipe, config, values));
  EngineCommand command{.argv = merge.args(), .words = merge.words(), .warnings = merge.warnings()};
  if (!config.program.empty()) {
    command.argv.front() = config.program;
  }
  for (const std::string& variable : merge.environment()) {
    const size_t equals = variable.find('=');
    command.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  if (const RecipeStore* const store = recipe.store(values.store.kind)) {
    command.store_file = fill_words(store->file, command.words);
  }
  if (values.role == "prefill" && values.part == 0) {
    command.kv_address = fill_words(recipe.kv_address, command.words);
  }
  return command;
}

uint32_t background_priority(const EngineRecipe& recipe, const ForeignConfig& config) {
  uint32_t priority = 0;
  for (const RecipeFeature& feature : recipe.features) {
    priority =
        has_feature(config, feature) ? std::max(priority, feature.background_priority) : priority;
  }
  return priority;
}

std::vector<uint16_t> ports_of_user(const EngineRecipe& recipe, const ForeignConfig& config,
                                    const EngineValues& values) {
  const std::vector<PortWord> words = port_words(recipe, values.shape);
  EngineValues none = values;
  none.ports.assign(words.size(), 0);
  const Merge merge(template_of(recipe, config, none), config, words_of(recipe, config, none));
  std::vector<uint16_t> ports;
  for (const PortWord& word : words) {
    const auto found = merge.words().find(word.word);
    ports.push_back(parse_number<uint16_t>(found->second).value_or(0));
  }
  return ports;
}

std::string shell_text(const EngineCommand& command, std::string_view key_environment) {
  std::string text;
  for (const auto& [name, value] : command.environment) {
    text += name + "=" + (is_secret(name, value) ? "..." : quoted(value)) + " ";
  }
  if (!key_environment.empty()) {
    text.append(key_environment).append("=... ");
  }
  for (const std::string& argument : command.argv) {
    text += quoted(argument) + (&argument == &command.argv.back() ? "" : " ");
  }
  return text;
}

}  // namespace pdjob::engine
