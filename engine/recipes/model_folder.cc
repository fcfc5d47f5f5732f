#include "engine/recipes/model_folder.h"

#include <filesystem>
#include <system_error>

#include "common/config/config_document.h"
#include "common/config/config_file.h"
#include "common/parse_number.h"

namespace pdjob::engine {
namespace {

uint32_t number(const ConfigNode& config, std::string_view key) {
  const ConfigEntry* const entry = config.find(key);
  return entry == nullptr ? 0 : parse_number<uint32_t>(entry->value.text).value_or(0);
}

// "model.safetensors", or "model-00001-of-00004.safetensors" and the others. Some folders hold the
// same weights under other names, too.
uint64_t weight_bytes(const std::string& path) {
  uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) {
      const uint64_t bytes = at->file_size(error);
      sum += error ? 0 : bytes;
    }
  }
  return error ? 0 : sum;
}

}  // namespace

ModelFolder read_model_folder(const std::string& path) {
  const auto text = read_config_file(path + "/config.json");
  const auto all = text ? parse_config_value(*text) : Result<ConfigNode>(text.error());
  if (!all || all->kind != ConfigNode::Kind::kMapping) {
    return {};
  }
  const ConfigEntry* const of_text = all->find("text_config");  // Of a model that also sees.
  const bool nested = of_text != nullptr && of_text->value.kind == ConfigNode::Kind::kMapping;
  const ConfigNode& config = nested ? of_text->value : *all;
  ModelFolder folder{.heads = number(config, "num_attention_heads"),
                     .kv_heads = number(config, "num_key_value_heads"),
                     .latent = number(config, "kv_lora_rank") > 0,
                     .weight_bytes = weight_bytes(path)};
  folder.kv_heads = folder.kv_heads == 0 ? folder.heads : folder.kv_heads;
  return folder;
}

}  // namespace pdjob::engine
