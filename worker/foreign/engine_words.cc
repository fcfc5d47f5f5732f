#include "worker/foreign/engine_words.h"

#include "common/json/json_writer.h"

namespace pdjob::worker {
namespace {

constexpr int kWarmUpWords = 200;  // More than one block of KV, which may hold 128 tokens.

}  // namespace

net::Protocol protocol_of(const std::string& word) {
  return word == "sglang"      ? net::Protocol::kSglang
         : word == "nixl_push" ? net::Protocol::kNixlPush
                               : net::Protocol::kNixl;
}

std::string warm_up_body(const std::string& model) {
  std::string prompt = "Warm up:";
  for (int i = 0; i < kWarmUpWords; ++i) {
    prompt += " " + std::to_string(i);
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("model").string(model);
  json.key("prompt").string(prompt);
  json.key("max_tokens").integer(2);
  json.key("temperature").integer(0);
  json.end_object();
  return text;
}

std::vector<std::string> access_lines(const engine::EngineRecipe& recipe) {
  std::vector<std::string> lines;
  for (const std::string& path : {recipe.ready_path, recipe.metrics.path,
                                  recipe.metrics.in_flight_path, recipe.models_path}) {
    if (!path.empty()) {
      lines.push_back("\"GET " + path + " HTTP/1.1\" 200");
    }
  }
  return lines;
}

}  // namespace pdjob::worker
