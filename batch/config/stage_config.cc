#include "batch/config/stage_config.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "common/config/named_items.h"

namespace pdjob::batch {
namespace {

constexpr size_t kStagesMax = 16;  // Before the model, and after it.
constexpr size_t kNameMax = 32;
constexpr uint32_t kWorkersMax = 1024;
constexpr uint32_t kPipelineMax = 64;
constexpr Duration kStageTimeoutMax = std::chrono::hours(24);

bool is_stage_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

bool names_function(std::string_view python) {
  const size_t colon = python.rfind(':');
  return colon != std::string_view::npos && colon > 0 && colon + 1 < python.size();
}

void read_stage(StageConfig& stage, ConfigReader& in) {
  in.field("command", stage.command,
           {.doc = "The program and its arguments. It starts in the folder of the job file. It "
                   "writes one JSON line for each line that it reads, in order."});
  in.field("python", stage.python,
           {.doc = "`FILE:FUNCTION`, instead of a command: a function that takes a dict and "
                   "returns one. `python3` runs it."});
  in.field("workers", stage.workers, {.doc = "Processes of the stage.", .unit = "processes"},
           {1, kWorkersMax});
  in.field("pipeline", stage.pipeline,
           {.doc = "Rows that one process has at most; the others wait.", .unit = "rows"},
           {1, kPipelineMax});
  in.field("timeout", stage.timeout,
           {.doc = "How long a row may take. A process that takes longer is started again."},
           {std::chrono::milliseconds(1), kStageTimeoutMax});
  in.field("start_timeout", stage.start_timeout,
           {.doc = "How much longer the first row of a process may take."},
           {Duration::zero(), kStageTimeoutMax});
}

void check_stage(const StageConfig& stage, ConfigReader& in) {
  if (!is_stage_name(stage.name)) {
    in.fail("",
            "the name of a stage has 1 to " + std::to_string(kNameMax) + " of a-z, 0-9, - and _");
  }
  if (stage.command.empty() == stage.python.empty()) {
    in.fail("command", "a stage has either `command` or `python`");
  } else if (!stage.python.empty() && !names_function(stage.python)) {
    in.fail("python", "must be FILE:FUNCTION, such as judge.py:judge");
  } else if (!stage.command.empty() && stage.command.front().empty()) {
    in.fail("command", "its first word names the program");
  }
}

// Without the key, the stages stay as they were: flags are laid over a file.
void read_list(ConfigReader& in, const char* key, FieldText text,
               std::vector<StageConfig>& stages) {
  const std::vector<StageConfig> before = stages;
  named_items(in, key, text, stages, [](StageConfig& stage, ConfigReader& section) {
    read_stage(stage, section);
    check_stage(stage, section);
  });
  if (stages.empty()) {
    stages = before;
  }
  if (stages.size() > kStagesMax) {
    in.fail(key, "at most " + std::to_string(kStagesMax) + " stages");
  }
}

void append_identity(JsonWriter& json, const char* key, const std::vector<StageConfig>& stages) {
  json.key(key).begin_array();
  for (const StageConfig& stage : stages) {
    json.begin_array().string(stage.name).string(stage.python);
    for (const std::string& word : stage.command) {
      json.string(word);
    }
    json.end_array();
  }
  json.end_array();
}

void append_plan(JsonWriter& json, const char* key, const std::vector<StageConfig>& stages) {
  json.key(key).begin_array();
  for (const StageConfig& stage : stages) {
    json.begin_object();
    json.key("name").string(stage.name);
    json.key("workers").integer(stage.workers);
    json.key("command").string(command_text(stage));
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::vector<const StageConfig*> StagesConfig::all() const {
  std::vector<const StageConfig*> stages;
  for (const auto* list : {&before, &after}) {
    for (const StageConfig& stage : *list) {
      stages.push_back(&stage);
    }
  }
  return stages;
}

void read(ConfigReader& in, StagesConfig& config) {
  read_list(in, "before",
            {.doc = "By name, in order: each row goes through them before its request is made."},
            config.before);
  read_list(in, "after", {.doc = "By name, in order: each answer goes through them."},
            config.after);
  std::set<std::string> names;
  for (const StageConfig* stage : config.all()) {
    if (!names.insert(stage->name).second) {
      in.fail("after", "two stages are called " + stage->name);
    }
  }
}

std::string identity_of(const StagesConfig& config) {
  if (config.empty()) {
    return "";
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  append_identity(json, "before", config.before);
  append_identity(json, "after", config.after);
  json.end_object();
  return text;
}

std::string command_text(const StageConfig& stage) {
  std::string text = stage.python;
  for (const std::string& word : stage.command) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string plan_text(const StagesConfig& config) {
  std::string text;
  for (const auto& [when, stages] :
       {std::pair(" before", &config.before), std::pair(" after", &config.after)}) {
    for (const StageConfig& stage : *stages) {
      text += "stage " + stage.name + "," + when + " the model: " + std::to_string(stage.workers) +
              (stage.workers == 1 ? " process of " : " processes of ") + command_text(stage) + "\n";
    }
  }
  return text;
}

void append_plan(JsonWriter& json, const StagesConfig& config) {
  if (!config.empty()) {
    json.key("stages").begin_object();
    append_plan(json, "before", config.before);
    append_plan(json, "after", config.after);
    json.end_object();
  }
}

}  // namespace pdjob::batch
