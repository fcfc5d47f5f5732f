// OpenAI's /v1/embeddings: reads requests and writes replies. And its client, which asks for the
// vector of a text. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "openai/openai.h"
#include "openai/openai_fields.h"
#include "openai/openai_reply.h"

namespace pdjob::openai {

void read_embedding_request(const Fields& fields, ApiRequest& request);

// Each part has the embedding of one input. There are no streams. Value.
class EmbeddingReplyWriter final : public ReplyForm {
 public:
  explicit EmbeddingReplyWriter(ReplyOptions options) : options_(std::move(options)) {}

  void append_part(std::string& out, const ReplyPart& part) override;
  void append_end(std::string& out, const Usage& usage) override;
  void append_whole(std::string& out, std::span<const ReplyPart> parts, const Usage& usage,
                    std::string_view kv_transfer_params) override;

 private:
  const ReplyOptions options_;
};

// --- the client

// `model` may be empty; the request then names none.
std::string embedding_request(std::string_view model, std::string_view text);

// The first vector of a reply's body: 1 .. limits::kEmbeddingDimensionsMax numbers.
Result<std::vector<float>> parse_embedding(const std::string& reply_body);

}  // namespace pdjob::openai
