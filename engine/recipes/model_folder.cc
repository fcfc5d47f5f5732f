#include "engine/recipes/model_folder.h"

#include "common/config/config_document.h"
#include "common/config/config_file.h"
#include "common/parse_number.h"

namespace pdjob::engine {
namespace {

uint32_t number(const ConfigNode& config, std::string_view key) {
  const ConfigEntry* const entry = config.find(key);
  return entry == nullptr ? 0 : parse_number<uint32_t>(entry->value.text).value_or(0);
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
                     .latent = number(config, "kv_lora_rank") > 0};
  folder.kv_heads = folder.kv_heads == 0 ? folder.heads : folder.kv_heads;
  return folder;
}

}  // namespace pdjob::engine
