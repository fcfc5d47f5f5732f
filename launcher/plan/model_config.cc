#include "launcher/plan/model_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include "common/config/config_text.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kJobNameBytesMax = 63;
constexpr size_t kServedNameBytesMax = 256;
constexpr size_t kModelsMax = 16;
constexpr const char* kNoModelInstalled =
    "; none is installed: `./dev model` in a clone installs the default one, and so does the "
    "package pdjob-quickstart";
constexpr FieldText kModelsText{
    "Several models in place of `model`, by name (as jobs are named); each has workers of its own, "
    "such as NAME-prefill-0."};

using Read = std::function<void(ConfigReader& in)>;

void read_override(ConfigReader& in, const char* key, FieldText text, Overrides overrides,
                   const Read& read) {
  // Errors in the common keys are not reported again.
  const bool written = in.has(key);
  in.section(key, text, [&](ConfigReader& section) {
    if (overrides == Overrides::kRead && written) {
      read(section);
    }
  });
}

void read_engine(ConfigReader& in, Overrides overrides, engine::EngineConfig& config) {
  read_override(in, "engine", {.doc = "Keys of `engine` that differ here."}, overrides,
                [&](ConfigReader& section) { engine::read(section, config); });
}

void read_prefill(ConfigReader& in, Overrides overrides, ModelConfig& model) {
  in.field("workers", model.prefill_workers,
           {.doc = "How many. 0: decode workers compute their prompts themselves."},
           {0, kWorkersPerRoleMax});
  read(in, model.prefill_group);
  prefill::read(in, model.prefill);
  read_engine(in, overrides, model.prefill_engine);
}

void read_decode(ConfigReader& in, Overrides overrides, ModelConfig& model) {
  in.field("workers", model.decode_workers, {.doc = "How many."}, {1, kWorkersPerRoleMax});
  read(in, model.decode_group);
  decode::read(in, model.decode);
  read_engine(in, overrides, model.decode_engine);
}

// KV rows can only move between engines of the same kind and KV type; they are not converted. Each
// end chooses its own number and length of sequences.
void check_engines(ConfigReader& in, const ModelConfig& model) {
  const engine::EngineConfig& p = model.prefill_engine;
  const engine::EngineConfig& d = model.decode_engine;
  if (!model.disaggregated()) {
    return;
  }
  // Reports the error at the role that differs from the common `engine`.
  const auto refuse = [&](const std::string& key, const std::string& values) {
    const std::string decode_key = "decode.engine." + key;
    in.fail(in.has(decode_key) ? decode_key : "prefill.engine." + key,
            "must be the same for prefill and decode, got " + values);
  };
  if (p.kind != d.kind || p.foreign.make != d.foreign.make) {
    refuse("kind", "different ones: KV cannot move between different engines");
  }
  if (p.kv_type != d.kv_type) {
    refuse("kv_type", std::string(to_string(p.kv_type)) + " and " + to_string(d.kv_type) +
                          ": KV is not converted on its way");
  }
  using engine::CpuKernels;
  if (p.cpu != d.cpu && p.cpu != CpuKernels::kAuto && d.cpu != CpuKernels::kAuto && !p.gpu &&
      !d.gpu) {
    refuse("cpu", std::string(to_string(p.cpu)) + " and " + to_string(d.cpu) +
                      ": their kernels compute different KV");
  }
}

// Where a key of a role's engine stands: at the role, or at the common `engine`.
std::string place_of(const ConfigReader& in, net::Role role, const std::string& key) {
  const std::string own = std::string(net::to_string(role)) + ".engine." + key;
  const std::string common = "engine." + key;
  return !in.has(own) && in.has(common) ? common : own;
}

engine::EngineConfig& engine_of(ModelConfig& model, net::Role role) {
  return role == net::Role::kPrefill ? model.prefill_engine : model.decode_engine;
}

std::vector<net::Role> foreign_roles(const ModelConfig& model) {
  if (model.decode_engine.kind != engine::EngineKind::kForeign) {
    return {};
  }
  return model.disaggregated() ? std::vector{net::Role::kPrefill, net::Role::kDecode}
                               : std::vector{net::Role::kDecode};
}

void check_kv_events(ConfigReader& in, const router::RouterConfig& router, std::string_view store,
                     ModelConfig& model) {
  if (!model.disaggregated() && !model.prefill_engine.foreign.make.empty()) {
    model.prefill_engine.foreign.kv_events = false;  // It takes no ports of a band.
  }
  std::set<std::pair<std::string, std::string>> told;
  for (const net::Role role : foreign_roles(model)) {
    engine::ForeignConfig& engine = engine_of(model, role).foreign;
    if (engine.make.empty()) {
      continue;  // An error that is reported already.
    }
    engine.kv_events = engine.kv_events && router.kind == router::RouterKind::kBuiltIn &&
                       router.kv_events.own_workers && router::goes_by_prefixes(router, role);
    if (!engine.kv_events) {
      continue;
    }
    const std::string args = place_of(in, role, "args");
    if (const std::string own = engine::own_kv_events_option(engine);
        !own.empty() && told.emplace(args, own).second) {
      in.fail(args, own +
                        " is set by pdjob, because the router's policy is prefix_aware: remove "
                        "it, or set engine.kv_events: false");
    }
    const std::string why = engine::kv_events_hindrance(engine, store, router::kTokenBlockTokens);
    if (why.empty()) {
      continue;
    }
    engine.kv_events = false;
    if (told.emplace(args, why).second) {
      in.warn(place_of(in, role, "kind"),
              engine.make + " does not tell the router what is in its prefix cache: " + why +
                  ". Until then the router goes by what it sent. engine.kv_events: false silences "
                  "this");
    }
  }
}

void check_features(ConfigReader& in, const router::RouterConfig& router, ModelConfig& model) {
  const std::vector<net::Role> roles = foreign_roles(model);
  if (roles.empty()) {
    return;
  }
  const engine::ForeignConfig& decode = model.decode_engine.foreign;
  const std::string place = place_of(in, roles.front(), "features");
  if (model.disaggregated() && model.prefill_engine.foreign.features != decode.features) {
    in.fail(place, "must be the same for prefill and decode: the recipe says what each role gets");
  }
  const engine::EngineRecipe recipe = engine::recipe_of(decode);
  for (const std::string& name : decode.features) {
    const engine::RecipeFeature* const feature = recipe.feature(name);
    if (feature != nullptr && !model.disaggregated() && feature->both.args.empty()) {
      in.fail(place, name + " is for engines that hand KV over, and prefill.workers is 0");
    } else if (feature != nullptr && !feature->refused_because.empty() &&
               router.kind == router::RouterKind::kBuiltIn) {
      in.fail(place, name + " is refused with pdjob's own router: " + feature->refused_because);
    }
  }
}

// A role may complete what the common `engine` begins, so these rules are for the keys of both.
void check_shapes(ConfigReader& in, const ModelConfig& model) {
  std::set<std::pair<std::string, std::string>> told;
  for (const bool prefill : {true, false}) {
    const engine::EngineConfig& engine = prefill ? model.prefill_engine : model.decode_engine;
    if (engine.kind != engine::EngineKind::kForeign || (prefill && !model.disaggregated())) {
      continue;
    }
    const engine::EngineRecipe recipe = engine::recipe_of(engine.foreign);
    std::vector<engine::ShapeProblem> problems =
        engine::check_shape(engine::shape_wish(recipe, engine.foreign, engine.gpu));
    if (auto problem = engine::part_problem(recipe, engine.foreign, engine.gpu_percent)) {
      problems.push_back(*std::move(problem));
    }
    for (const auto& [key, message] : problems) {
      const std::string place =
          place_of(in, prefill ? net::Role::kPrefill : net::Role::kDecode, key);
      if (told.emplace(place, message).second) {
        in.fail(place, message);
      }
    }
  }
}

// A path on this machine, and not a name such as Qwen/Qwen3-0.6B.
bool is_foreign_path(const std::string& word) {
  return word.starts_with('/') || word.starts_with('.') || word.starts_with('~');
}

bool is_foreign(const ModelConfig& model) {
  return model.decode_engine.kind == engine::EngineKind::kForeign;
}

void resolve_foreign_model(ConfigReader& in, ModelConfig& model) {
  const std::string word = in.written("model");
  if (word.empty()) {
    in.fail("model", "is missing: name a model or a path that the engine can load");
    return;
  }
  if (!is_foreign_path(word)) {
    model.model = word;
  } else if (!is_foreign_path(model.model)) {
    model.model.insert(0, "./");  // It begins at the folder of the file.
  }
  if (model.served_name.empty()) {
    model.served_name =
        is_foreign_path(word) ? std::filesystem::path(word).filename().string() : word;
  }
}

bool is_path(const std::string& model) {
  return model.ends_with(".gguf") || model.find('/') != std::string::npos;
}

void resolve_model(ConfigReader& in, const Places& places, ModelConfig& model) {
  if (model.served_name.empty()) {
    model.served_name = model.name;
  }
  if (model.prefill_engine.kind == engine::EngineKind::kFake &&
      model.decode_engine.kind == engine::EngineKind::kFake) {
    model.served_name = model.served_name.empty() ? (model.model.empty() ? "fake" : model.model)
                                                  : model.served_name;
  } else if (is_foreign(model)) {
    resolve_foreign_model(in, model);
  } else {
    if (model.served_name.empty()) {
      model.served_name =
          is_path(model.model) ? std::filesystem::path(model.model).stem().string() : model.model;
    }
  }
  for (engine::EngineConfig* engine : {&model.prefill_engine, &model.decode_engine}) {
    const Status found = places.models_here ? find_file(model.model, places, *engine) : ok();
    if (!found && !places.models_elsewhere) {
      in.fail("model", found.error().message);
      break;
    }
  }
  model.prefill_engine.served_name = model.decode_engine.served_name = model.served_name;
}

void check_model(ConfigReader& in, const Places& places, ModelConfig& model) {
  resolve_model(in, places, model);
  if (model.served_name.size() > kServedNameBytesMax) {
    in.fail("served_name", "must have at most 256 bytes");
  }
  check_engines(in, model);
  check_shapes(in, model);
  check(in, "prefill", model.prefill_workers, model.prefill_group);
  check(in, "decode", model.decode_workers, model.decode_group);
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// PREFIX/bin/pdjob finds what packages put into PREFIX.
std::string packaged_models() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const auto folder = program.parent_path().parent_path() / "share/pdjob/models";
  return std::filesystem::is_directory(folder, failed) ? folder.string() : "";
}

}  // namespace

// A key of a model replaces the same key of the job. So the keys of all workers (`engine`) are read
// before those of the roles. In each section, the job's keys are read before the model's.
void read_models(ConfigReader& in, Overrides overrides, std::vector<ModelConfig>& models) {
  ModelConfig common;
  in.path("model", common.model,
          {.doc = "A .gguf file, or the name of a model that `./dev model` installed. An engine "
                  "of another make gets a path if it begins with /, . or ~, and otherwise the name "
                  "as it is."},
          ".gguf");
  in.field("served_name", common.served_name,
           {.doc = "What clients call the model. Default: the file's name without its ending."});
  engine::EngineConfig engine;
  in.section("engine",
             {.doc = "The engine of every worker; each role, and each of several models, may "
                     "override keys in its own `engine`."},
             [&](ConfigReader& section) { engine::read(section, engine); });

  in.named_sections("models", kModelsText, [&](const std::string& name, ConfigReader& section) {
    ModelConfig& model = models.emplace_back();
    model.name = name;
    section.path("model", model.model, {.doc = "As `model` of a job."}, ".gguf");
    section.field("served_name", model.served_name,
                  {.doc = "What clients call the model. Default: its name here."});
    model.prefill_engine = engine;
    read_engine(section, overrides, model.prefill_engine);
    model.decode_engine = model.prefill_engine;
  });
  if (models.empty()) {
    common.prefill_engine = common.decode_engine = engine;
    models.push_back(std::move(common));
  }
  for (ModelConfig& model : models) {
    in.section("prefill", {.doc = "The workers that compute prompts."},
               [&](ConfigReader& section) { read_prefill(section, overrides, model); });
    in.section("decode", {.doc = "The workers that generate tokens."},
               [&](ConfigReader& section) { read_decode(section, overrides, model); });
  }
  auto model = models.begin();
  in.named_sections("models", kModelsText, [&](const std::string&, ConfigReader& section) {
    read_override(section, "prefill", {.doc = "Keys of `prefill` that differ here."}, overrides,
                  [&](ConfigReader& own) { read_prefill(own, overrides, *model); });
    read_override(section, "decode", {.doc = "Keys of `decode` that differ here."}, overrides,
                  [&](ConfigReader& own) { read_decode(own, overrides, *model); });
    ++model;
  });
}

void check_models(ConfigReader& in, const Places& places, std::vector<ModelConfig>& models) {
  if (!in.has("models")) {
    check_model(in, places, models.front());
    return;
  }
  for (const char* const key : {"model", "served_name"}) {
    if (in.has(key)) {
      in.fail(key, "is for a job of one model: each of `models` has its own");
    }
  }
  if (models.front().name.empty()) {
    in.fail("models", "is empty: name at least one");
  } else if (models.size() > kModelsMax) {
    in.fail("models", "must be at most " + std::to_string(kModelsMax) + ", got " +
                          std::to_string(models.size()));
  }
  std::set<std::string> served;
  auto model = models.begin();
  in.named_sections("models", kModelsText, [&](const std::string& name, ConfigReader& section) {
    if (!is_job_name(name)) {
      section.fail("",
                   "a model's name must be 1..63 of a-z, 0-9, - and _, and not begin with -; "
                   "clients may call it by any `served_name`");
    }
    check_model(section, places, *model);
    if (!served.insert(model->served_name).second) {
      section.fail("served_name", "another model is called " + model->served_name + ", too");
    }
    ++model;
  });
}

void check_engines_and_router(ConfigReader& in, const router::RouterConfig& router,
                              std::string_view store, std::vector<ModelConfig>& models) {
  const auto check = [&](ConfigReader& section, ModelConfig& model) {
    check_kv_events(section, router, store, model);
    check_features(section, router, model);
  };
  if (!in.has("models")) {
    check(in, models.front());
    return;
  }
  auto model = models.begin();
  in.named_sections("models", kModelsText,
                    [&](const std::string&, ConfigReader& section) { check(section, *model++); });
}

bool is_job_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= kJobNameBytesMax && name.front() != '-' &&
         std::ranges::all_of(name, plain);
}

Places places_from_environment() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  return {.home = variable("HOME"),
          .models = variable("PDJOB_MODELS"),
          .packaged = packaged_models(),
          .state_home = variable("XDG_STATE_HOME"),
          .api_key = variable("PDJOB_API_KEY")};
}

std::string expand_home(const std::string& path, const Places& places) {
  return path == "~" || path.starts_with("~/") ? places.home + path.substr(1) : path;
}

Status find_file(const std::string& model, const Places& places, engine::EngineConfig& engine) {
  if (engine.kind == engine::EngineKind::kForeign) {
    engine.model_path = is_foreign_path(model) ? expand_home(model, places) : model;
  } else if (engine.kind == engine::EngineKind::kLlama) {
    PDJOB_TRY(engine.model_path, find_model(model, places));
  }
  return ok();
}

namespace {

// The folders that a model's name is searched in.
std::vector<std::string> model_folders(const Places& places) {
  std::vector<std::string> folders;
  for (const std::string& folder :
       {places.models, places.home + "/.cache/pdjob/models", places.packaged}) {
    if (!folder.empty() && std::ranges::find(folders, folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  return folders;
}

// The names of the models in these folders, without ".gguf", in order.
std::vector<std::string> models_in(const std::vector<std::string>& folders) {
  constexpr size_t kEntriesMax = 4096;
  std::set<std::string> names;
  size_t seen = 0;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator() && seen < kEntriesMax; ++seen) {
      if (entry->path().extension() == ".gguf" && is_gguf(entry->path())) {
        names.insert(entry->path().stem().string());
      }
      entry.increment(error);
    }
  }
  return {names.begin(), names.end()};
}

// What to write in place of a model that is not there.
std::string advice_for(const std::string& model, const std::vector<std::string>& installed,
                       const std::string& folder) {
  constexpr size_t kNamesMax = 8;
  const std::string where = folder.empty() ? "installed" : "in " + folder;
  if (installed.empty()) {
    return folder.empty() ? kNoModelInstalled : "";
  }
  std::string text;
  if (const std::string meant = nearest_word(model, installed); !meant.empty()) {
    text = "; did you mean " + meant + "?";
  }
  text += "; " + where + (installed.size() == 1 ? " is " : " are ");
  for (size_t i = 0; i < std::min(installed.size(), kNamesMax); ++i) {
    text += (i == 0 ? "" : ", ") + installed[i];
  }
  return text + (installed.size() > kNamesMax
                     ? " and " + std::to_string(installed.size() - kNamesMax) + " more"
                     : "");
}

}  // namespace

Result<std::string> find_model(const std::string& model, const Places& places) {
  const std::vector<std::string> folders = model_folders(places);
  if (model.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "is missing: name a .gguf file or an installed model" +
                     advice_for("", models_in(folders), "")};
  }
  std::vector<std::filesystem::path> candidates;
  if (is_path(model)) {
    candidates.emplace_back(expand_home(model, places));
  } else {
    for (const std::string& folder : folders) {
      candidates.emplace_back(std::filesystem::path(folder) / (model + ".gguf"));
    }
  }
  std::string tried;
  for (const auto& candidate : candidates) {
    if (is_gguf(candidate)) {
      return std::filesystem::absolute(candidate).string();
    }
    tried += (tried.empty() ? "" : " nor ") + candidate.string();
  }
  std::string advice;
  if (is_path(model)) {
    const std::filesystem::path parent = candidates.front().parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    advice = advice_for(candidates.front().stem(), models_in({folder}), folder);
  } else {
    advice = advice_for(model, models_in(folders), "");
  }
  return Error{ErrorCode::kInvalidArgument, "not found: no file " + tried + advice};
}

}  // namespace pdjob::launcher
