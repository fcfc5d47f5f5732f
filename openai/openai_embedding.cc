#include "openai/openai_embedding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <simdjson.h>
#include <sodium.h>

#include "common/check.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "openai/openai_prompt.h"

namespace pdjob::openai {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 has little-endian floats");

std::string base64(std::span<const float> embedding) {
  const size_t bytes = embedding.size_bytes();
  std::string text(sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(),
                    reinterpret_cast<const unsigned char*>(embedding.data()), bytes,
                    sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // The NUL at its end.
  return text;
}

// Its first `dimensions`, of length 1 again.
std::vector<float> shortened(std::span<const float> embedding, uint32_t dimensions) {
  if (dimensions == 0 || dimensions >= embedding.size()) {
    return {embedding.begin(), embedding.end()};
  }
  std::vector<float> out(embedding.begin(), embedding.begin() + dimensions);
  double squares = 0;
  for (const float x : out) {
    squares += double{x} * x;
  }
  const double length = std::sqrt(squares);
  for (float& x : out) {
    x = length > 0 ? static_cast<float>(x / length) : 0.0F;
  }
  return out;
}

}  // namespace

void read_embedding_request(const Fields& fields, ApiRequest& request) {
  read_prompts(fields, "input", request);
  std::string format = "float";
  fields.text("encoding_format", format);
  request.base64 = format == "base64";
  if (!request.base64 && format != "float") {
    fields.wrong("encoding_format", "must be one of float, base64, got " + excerpt(format));
  }
  fields.integer("dimensions", {1, kTokenMax}, request.dimensions);
  fields.text("cache_salt", request.cache_salt);
  // -1 is the model's own maximum. A longer input is refused anyway.
  int32_t truncated = -1;
  fields.integer("truncate_prompt_tokens", {-1, -1}, truncated);
  for (const char* name : {"add_special_tokens", "normalize", "use_activation"}) {
    fields.only(name, true);
  }
  request.stop.max_tokens = 0;
}

void EmbeddingReplyWriter::append_part(std::string& /*out*/, const ReplyPart& /*part*/) {
  PDJOB_CHECK(false, "embeddings are never streamed");
}

void EmbeddingReplyWriter::append_end(std::string& /*out*/, const Usage& /*usage*/) {
  PDJOB_CHECK(false, "embeddings are never streamed");
}

void EmbeddingReplyWriter::append_whole(std::string& out, std::span<const ReplyPart> parts,
                                        const Usage& usage,
                                        std::string_view /*kv_transfer_params*/) {
  JsonWriter json(out);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ReplyPart& part : parts) {
    const std::vector<float> embedding = shortened(part.embedding, options_.dimensions);
    json.begin_object().key("object").string("embedding").key("index").integer(part.choice);
    json.key("embedding");
    if (options_.base64) {
      json.string(base64(embedding));
    } else {
      json.begin_array();
      for (const float x : embedding) {
        json.number(x);
      }
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().key("model").string(options_.model);
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens);
  json.end_object().end_object();
}

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
