#include "openai/openai_embedding.h"

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "common/limits.h"

namespace pdjob::openai {

std::string embedding_request(std::string_view model, std::string_view text) {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  if (!model.empty()) {
    json.key("model").string(model);
  }
  json.key("input").string(text);
  json.key("encoding_format").string("float");
  json.end_object();
  return body;
}

Result<std::vector<float>> parse_embedding(const std::string& reply_body) {
  simdjson::dom::parser parser;
  simdjson::dom::array numbers;
  const Error wrong{ErrorCode::kCorrupt, "the reply holds no vector"};
  if (parser.parse(reply_body)["data"].at(0)["embedding"].get(numbers) != simdjson::SUCCESS ||
      numbers.size() == 0 || numbers.size() > limits::kEmbeddingDimensionsMax) {
    return wrong;
  }
  std::vector<float> vector;
  vector.reserve(numbers.size());
  for (const simdjson::dom::element number : numbers) {
    double value = 0;
    if (number.get(value) != simdjson::SUCCESS) {
      return wrong;
    }
    vector.push_back(static_cast<float>(value));
  }
  return vector;
}

}  // namespace pdjob::openai
