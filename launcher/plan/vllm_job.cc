#include "launcher/plan/vllm_job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/config_text.h"
#include "common/parse_number.h"
#include "launcher/plan/model_config.h"
#include "launcher/plan/vllm_kv_config.h"
#include "launcher/plan/vllm_options.h"
#include "launcher/plan/vllm_router.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kVllmGpusMax = 1U << 16;
constexpr uint32_t kSecondsMax = 24 * 3600;
constexpr uint32_t kSecondsOfVllm = 600;  // Its default.
constexpr const char* kExtra = "_extra_params";

using Variables = std::map<std::string, std::string>;

// `params` and what stands behind them on the command line.
struct Params {
  VllmOptions options;
  VllmOptions extra;
};

struct Role {
  Variables environment;
  uint32_t gpus = 1;  // As written; 0: the engine computes on CPUs.
  uint32_t replicas = 1;
  Params params;
  std::vector<std::string> args;  // All that pdjob does not derive.
};

struct VllmJob {
  uint32_t timeout = kSecondsOfVllm;
  uint32_t gpus = 0;
  uint32_t gpus_per_worker = 1;
  Variables environment;
  Params general;
  Role prefill;
  Role decode;
  VllmRouter router;
  std::string model;
  std::string served_name;
};

void read_variables(ConfigReader& in, Variables& variables) {
  in.section("envs", {"Environment of engines."}, [&](ConfigReader& section) {
    for (const std::string& name : section.written_keys()) {
      section.field(name, variables[name], {"A variable."});
    }
  });
}

void read_params(ConfigReader& in, Params& params) {
  in.section("params", {"Options of `vllm serve`."}, [&](ConfigReader& section) {
    for (const std::string& key : section.written_keys()) {
      std::string value;
      section.field(key, value, {"An option."});
      value = with_words(value);
      if (key != kExtra) {
        params.options.set_param(key, value);
      } else if (const auto words = shell_words(value)) {
        params.extra.set_words(*words);
      } else {
        section.fail(key, words.error().message);
      }
    }
  });
}

void read_role(ConfigReader& in, const char* name, Role& role, const VllmJob& job) {
  in.section(name, {"One role."}, [&](ConfigReader& section) {
    role.environment = job.environment;
    read_variables(section, role.environment);
    section.field("num_gpus", role.gpus, {"GPUs of the role."}, {0, kVllmGpusMax});
    section.field("replicas", role.replicas, {"Workers of the role."}, {1, kWorkersPerRoleMax});
    read_params(section, role.params);
    if (!section.has("num_gpus")) {
      section.warn("num_gpus", "is missing: each engine gets one GPU; 0 means CPUs");
    } else if (role.replicas > 1 && role.gpus > 1) {
      section.warn("num_gpus", "is " + std::to_string(role.gpus) + " for each of " +
                                   std::to_string(role.replicas) +
                                   " replicas in the code of the vLLM pdjob, and for all of them "
                                   "in its example; pdjob gives each engine one GPU");
    }
  });
}

// "prefill.params.KEY", or where else the key stands.
std::string place_of(const ConfigReader& in, const std::string& role, const std::string& key) {
  const std::string own = role + ".params." + key;
  const std::string general = "general.params." + key;
  const std::string extra = role + ".params." + kExtra;
  return in.has(own)       ? own
         : in.has(general) ? general
         : in.has(extra)   ? extra
                           : std::string("general.params.") + kExtra;
}

// Reports the options that pdjob derives, and takes them out.
void take_derived(ConfigReader& in, const std::string& role, VllmOptions& options) {
  if (const auto host = options.take("--host")) {
    in.warn(place_of(in, role, "host"),
            "is not used: an engine listens on the address of its node, because vLLM's key guards "
            "only a part of its routes");
  }
  if (const auto port = options.take("--port"); port && *port != "{port}") {
    in.warn(place_of(in, role, "port"),
            "is not used: pdjob takes ports from `engine.ports`, and tells the router");
  }
  for (const char* const key :
       {"tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size"}) {
    std::string option = std::string("--") + key;
    std::ranges::replace(option, '_', '-');
    if (parse_number<uint32_t>(options.value(option).value_or("1")).value_or(1) > 1) {
      in.warn(place_of(in, role, key), "needs several GPUs for each engine of " + role +
                                           ", and pdjob gives an engine one so far");
    }
  }
}

// Both roles run one model.
void take_model(ConfigReader& in, const std::string& role, VllmOptions& options, VllmJob& job) {
  const std::string model = options.take("--model").value_or("");
  const std::string served = options.take("--served-model-name").value_or("");
  if (!job.model.empty() && model != job.model) {
    in.fail(place_of(in, role, "model"), "must be the same for prefill and decode");
  }
  if (!job.served_name.empty() && served != job.served_name) {
    in.fail(place_of(in, role, "served_model_name"), "must be the same for prefill and decode");
  }
  if (model.empty()) {
    in.fail("general.params.model", "is missing: which model do the engines run?");
  } else if (model.starts_with('.')) {
    in.warn(place_of(in, role, "model"), "is relative: it starts at the folder of this file");
  }
  job.model = model;
  job.served_name = served;
}

void finish_role(ConfigReader& in, const std::string& name, Role& role, VllmJob& job) {
  VllmOptions all = job.general.options;
  all.merge(role.params.options);
  all.merge(job.general.extra);
  all.merge(role.params.extra);
  take_model(in, name, all, job);
  take_derived(in, name, all);
  std::string kv_config;
  if (const auto written = all.take("--kv-transfer-config")) {
    kv_config = read_vllm_kv_config(in, place_of(in, name, "kv_transfer_config"),
                                    {.role = name, .gpu = role.gpus > 0}, *written);
  }
  role.args = all.args();
  if (!kv_config.empty()) {
    role.args.push_back("--kv-transfer-config=" + kv_config);
  }
}

void read(ConfigReader& in, VllmJob& job) {
  in.field("timeout", job.timeout, {"To start.", "seconds"}, {1, kSecondsMax});
  in.field("num_gpus", job.gpus, {"GPUs of the cluster."}, {0, kVllmGpusMax});
  in.field("gpus_per_worker", job.gpus_per_worker, {"GPUs of a bundle."}, {1, kVllmGpusMax});
  if (job.gpus % job.gpus_per_worker != 0) {
    in.fail("num_gpus", "must be a multiple of gpus_per_worker, " +
                            std::to_string(job.gpus_per_worker) + ", got " +
                            std::to_string(job.gpus));
  }
  std::string working_dir;
  in.field("working_dir", working_dir, {"Folder of the engines."});
  if (!working_dir.empty()) {
    in.warn("working_dir", "is not used: engines run in the folder in which pdjob is started");
  }
  read_variables(in, job.environment);
  in.section("general", {"Both roles."},
             [&](ConfigReader& section) { read_params(section, job.general); });
  read_role(in, "prefill", job.prefill, job);
  read_role(in, "decode", job.decode, job);
  in.section("scheduler", {"The router."}, [&](ConfigReader& section) {
    job.router =
        read_vllm_router(section, {.prefill = job.prefill.replicas, .decode = job.decode.replicas});
  });
  finish_role(in, "prefill", job.prefill, job);
  finish_role(in, "decode", job.decode, job);
}

std::string job_name(const std::string& source) {
  std::string name = std::filesystem::path(source).stem().string();
  for (char& c : name) {
    const auto letter = static_cast<unsigned char>(c);
    c = std::isalnum(letter) != 0 || c == '_' ? static_cast<char>(std::tolower(letter)) : '-';
  }
  return is_job_name(name) ? name : "vllm";
}

void append(std::string& yaml, const std::string& indent, const char* key,
            const std::string& value) {
  yaml.append(indent).append(key).append(": ").append(yaml_text(value)).append("\n");
}

void append_list(std::string& yaml, const std::string& indent, const char* key,
                 const std::vector<std::string>& values) {
  if (!values.empty()) {
    yaml.append(indent).append(key).append(":\n");
  }
  for (const std::string& value : values) {
    yaml.append(indent).append("  - ").append(yaml_text(value)).append("\n");
  }
}

void append_role(std::string& yaml, const char* name, const Role& role) {
  yaml.append("\n").append(name).append(":\n");
  append(yaml, "  ", "workers", std::to_string(role.replicas));
  std::vector<std::string> environment;
  for (const auto& [variable, value] : role.environment) {
    environment.emplace_back(variable).append("=").append(value);
  }
  yaml += "  engine:\n";
  append(yaml, "    ", "gpu", role.gpus > 0 ? "true" : "false");
  append_list(yaml, "    ", "env", environment);
  append_list(yaml, "    ", "args", role.args);
}

std::string yaml_of(const VllmJob& job, const std::string& source) {
  std::string yaml;
  append(yaml, "", "name", job_name(source));
  append(yaml, "", "mode", "serve");
  append(yaml, "", "model", job.model);
  // vLLM calls a model by its whole path where nothing else is said.
  append(yaml, "", "served_name", job.served_name.empty() ? job.model : job.served_name);
  yaml += "\nengine:\n";
  append(yaml, "  ", "kind", "vllm");
  append_role(yaml, "prefill", job.prefill);
  append_role(yaml, "decode", job.decode);
  yaml += "\nrouter:\n";
  append(yaml, "  ", "listen", job.router.listen);
  if (!job.router.recipe.empty()) {
    append(yaml, "  ", "type", "command");
    append(yaml, "  ", "recipe", job.router.recipe);
    if (!job.router.program.empty()) {
      append(yaml, "  ", "program", job.router.program);
    }
    append_list(yaml, "  ", "args", job.router.args);
  }
  yaml += "\nlauncher:\n";
  append(yaml, "  ", "start_timeout", format_duration(std::chrono::seconds(job.timeout)));
  return yaml;
}

}  // namespace

bool is_vllm_job(const std::string& text) {
  const ConfigReader in = ConfigReader::parse("", text);
  const auto has = [&](const char* key) { return in.has(key); };
  constexpr auto kOnlyNative = std::to_array<const char*>(
      {"name", "mode", "model", "models", "engine", "router", "kvtransfer", "launcher"});
  return (has("scheduler") || has("general")) && std::ranges::none_of(kOnlyNative, has);
}

Result<NativeJob> native_job(const std::string& source, const std::string& text) {
  VllmJob job;
  ConfigReader in = ConfigReader::parse(source, text);
  read(in, job);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return NativeJob{.yaml = yaml_of(job, source), .warnings = in.warnings()};
}

}  // namespace pdjob::launcher
