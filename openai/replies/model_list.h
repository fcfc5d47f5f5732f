// The reply of an engine to GET /v1/models: its models, and its adapters (LoRA). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pdjob::openai {

struct ListedModels {
  // The only model that is no adapter. Empty: there is none, or there are several, which the engine
  // tells apart itself.
  std::string id;
  uint64_t created = 0;      // Unix seconds; 0: unknown.
  uint32_t context_max = 0;  // vLLM's max_model_len; 0: unknown.
  // As net::WorkerEntry has them. Those beyond its limits are left out.
  std::vector<std::string> adapters;
  size_t adapters_left_out = 0;
};
// A text that is no such reply has no models. A model with a `parent` is an adapter of it. `naming`
// says how a request names an adapter, with {model} and {adapter} in it; empty: by its id.
ListedModels parse_model_list(const std::string& body, std::string_view naming = {});

}  // namespace pdjob::openai
