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
  uint32_t gpus = 1;  // As written; 0: the engines compute on CPUs.
  Params params;
  NativeRole native;  // Its args are all that pdjob does not derive.
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
    role.native.environment = job.environment;
    read_variables(section, role.native.environment);
    section.field("num_gpus", role.gpus, {"GPUs of the role."}, {0, kVllmGpusMax});
    section.field("replicas", role.native.workers, {"Workers of the role."},
                  {1, kWorkersPerRoleMax});
    role.native.gpu = role.gpus > 0;
    read_params(section, role.params);
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

// "--max-model-len" as a key of `params`.
std::string key_of(std::string_view option) {
  std::string key(option.substr(2));
  std::ranges::replace(key, '-', '_');
  return key;
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
  for (const VllmTaken& taken : take_rendezvous(options)) {
    in.warn(place_of(in, role, key_of(taken.name)),
            "is not used: pdjob tells the parts of an engine where they are, and the ranks of an "
            "engine have one port");
  }
}

std::string sizes_text(const VllmSizes& sizes) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair("tensor", sizes.tensor), std::pair("pipeline", sizes.pipeline),
        std::pair("data", sizes.data), std::pair("prefill context", sizes.context)}) {
    if (size) {
      text.append(text.empty() ? "" : " x ").append(name).append(" ").append(std::to_string(*size));
    }
  }
  return text.empty() ? "no parallel sizes" : text;
}

// vLLM's code takes `num_gpus` as those of one replica, and its example as those of all.
void check_gpus(ConfigReader& in, const std::string& name, const Role& role) {
  const std::string place = name + ".num_gpus";
  const uint64_t one = role.native.sizes.gpus();
  const uint64_t all = one * role.native.workers;
  if (!in.has(place)) {
    in.warn(place, "is missing: each engine gets " + std::to_string(one) +
                       (one == 1 ? " GPU" : " GPUs, by its parallel sizes") + "; 0 means CPUs");
  } else if (role.native.gpu && role.gpus != one && role.gpus != all) {
    const std::string for_all =
        all == one ? "" : ", or " + std::to_string(all) + " for all replicas";
    in.fail(place, "must be " + std::to_string(one) + " for one engine (" +
                       sizes_text(role.native.sizes) + ")" + for_all + ", got " +
                       std::to_string(role.gpus) +
                       ": parallel sizes in params say how an engine uses its GPUs");
  }
}

void take_parallel(ConfigReader& in, const std::string& name, Role& role, VllmOptions& options) {
  std::vector<VllmTaken> wrong;
  role.native.sizes = take_sizes(options, wrong);
  for (const VllmTaken& option : wrong) {
    in.fail(place_of(in, name, key_of(option.name)),
            option.name + " must be a whole number from 1 on, got " + option.value);
  }
  check_gpus(in, name, role);
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

std::string read_kv_config(ConfigReader& in, const std::string& name, const Role& role,
                           const std::string& written) {
  const std::string place = place_of(in, name, "kv_transfer_config");
  const VllmKvConfig config = vllm_kv_config({.role = name, .gpu = role.native.gpu}, written);
  if (!config.error.empty()) {
    in.fail(place, config.error);
  }
  for (const std::string& warning : config.warnings) {
    in.warn(place, warning);
  }
  return config.passed;
}

void finish_role(ConfigReader& in, const std::string& name, Role& role, VllmJob& job) {
  VllmOptions all = job.general.options;
  all.merge(role.params.options);
  all.merge(job.general.extra);
  all.merge(role.params.extra);
  take_model(in, name, all, job);
  take_derived(in, name, all);
  take_parallel(in, name, role, all);
  std::string kv_config;
  if (const auto written = all.take("--kv-transfer-config")) {
    kv_config = read_kv_config(in, name, role, *written);
  }
  role.native.args = all.args();
  if (!kv_config.empty()) {
    role.native.args.push_back("--kv-transfer-config=" + kv_config);
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
    job.router = read_vllm_router(
        section, {.prefill = job.prefill.native.workers, .decode = job.decode.native.workers});
  });
  finish_role(in, "prefill", job.prefill, job);
  finish_role(in, "decode", job.decode, job);
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

void append_sizes(std::string& yaml, const NativeRole& role) {
  const VllmSizes& sizes = role.sizes;
  const uint64_t gpus = sizes.gpus();
  if (role.gpu && gpus > 1) {
    append(yaml, "    ", "gpus", std::to_string(gpus));
  }
  if (sizes.nodes.value_or(1) > 1) {
    append(yaml, "    ", "nodes", std::to_string(*sizes.nodes));
  }
  std::string parallel;
  for (const auto& [name, size] :
       {std::pair("tensor", sizes.tensor), std::pair("pipeline", sizes.pipeline),
        std::pair("data", sizes.data)}) {
    if (size.value_or(1) > 1) {
      append(parallel, "      ", name, std::to_string(*size));
    }
  }
  if (sizes.expert.value_or(false)) {
    append(parallel, "      ", "expert", "true");
  }
  yaml.append(parallel.empty() ? "" : "    parallel:\n").append(parallel);
}

void append_role(std::string& yaml, const char* name, const NativeRole& role) {
  yaml.append("\n").append(name).append(":\n");
  append(yaml, "  ", "workers", std::to_string(role.workers));
  std::vector<std::string> environment;
  for (const auto& [variable, value] : role.environment) {
    environment.emplace_back(variable).append("=").append(value);
  }
  yaml += "  engine:\n";
  append(yaml, "    ", "gpu", role.gpu ? "true" : "false");
  append_sizes(yaml, role);
  append_list(yaml, "    ", "env", environment);
  append_list(yaml, "    ", "args", role.args);
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
  const NativeParts parts = {
      .name = job_name_of(source),
      .model = job.model,
      // vLLM calls a model by its whole path where nothing else is said.
      .served_name = job.served_name.empty() ? job.model : job.served_name,
      .prefill = job.prefill.native,
      .decode = job.decode.native,
      .router = job.router,
      .start_seconds = job.timeout,
  };
  return NativeJob{.yaml = native_text(parts), .warnings = in.warnings()};
}

std::string job_name_of(const std::string& source) {
  std::string name = std::filesystem::path(source).stem().string();
  for (char& c : name) {
    const auto letter = static_cast<unsigned char>(c);
    c = std::isalnum(letter) != 0 || c == '_' ? static_cast<char>(std::tolower(letter)) : '-';
  }
  return is_job_name(name) ? name : "vllm";
}

std::string native_text(const NativeParts& parts) {
  std::string yaml;
  append(yaml, "", "name", parts.name);
  append(yaml, "", "mode", "serve");
  append(yaml, "", "model", parts.model);
  append(yaml, "", "served_name", parts.served_name);
  yaml += "\nengine:\n";
  append(yaml, "  ", "kind", "vllm");
  append_role(yaml, "prefill", parts.prefill);
  append_role(yaml, "decode", parts.decode);
  yaml += "\nrouter:\n";
  append(yaml, "  ", "listen", parts.router.listen);
  if (!parts.router.policy.empty()) {
    append(yaml, "  ", "prefill_policy", parts.router.policy);
    append(yaml, "  ", "decode_policy", parts.router.policy);
  }
  if (!parts.router.recipe.empty()) {
    append(yaml, "  ", "type", "command");
    append(yaml, "  ", "recipe", parts.router.recipe);
    if (!parts.router.program.empty()) {
      append(yaml, "  ", "program", parts.router.program);
    }
    append_list(yaml, "  ", "args", parts.router.args);
  }
  yaml += "\nlauncher:\n";
  append(yaml, "  ", "start_timeout", format_duration(std::chrono::seconds(parts.start_seconds)));
  return yaml;
}

}  // namespace pdjob::launcher
