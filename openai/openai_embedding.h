// Client of OpenAI's /v1/embeddings: asks for the vector of a text. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::openai {

// `model` may be empty; the request then names none.
std::string embedding_request(std::string_view model, std::string_view text);

// The first vector of a reply's body: 1 .. limits::kEmbeddingDimensionsMax numbers.
Result<std::vector<float>> parse_embedding(const std::string& reply_body);

}  // namespace pdjob::openai
