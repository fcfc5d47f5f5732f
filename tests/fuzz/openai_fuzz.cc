// Request bodies are the first bytes that strangers send. Each is a request within its bounds, or a
// 400 with a body that can be sent. An embedder's replies may be just as strange.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/limits.h"
#include "openai/abort_request.h"
#include "openai/openai.h"
#include "openai/openai_embedding.h"

using namespace pdjob;

namespace {

void check_request(const openai::ApiRequest& request) {
  const bool chat = openai::is_chat(request.kind);
  PDJOB_CHECK(request.messages.empty() != chat);
  PDJOB_CHECK(chat || request.prompts.empty() != request.token_prompts.empty());
  PDJOB_CHECK(request.choices >= 1 && request.choices <= limits::kChoicesMax);
  const bool prompt_only = request.echo || request.kind == openai::ApiKind::kEmbedding;
  PDJOB_CHECK(request.stop.max_tokens >= (prompt_only ? 0 : 1) && request.stop.min_tokens >= 0);
  const bool nested =
      request.kind == openai::ApiKind::kSglang || request.kind == openai::ApiKind::kTokens;
  PDJOB_CHECK(request.sampling.temperature >= 0);
  PDJOB_CHECK(request.sampling.temperature <= (nested ? 1000 : 2));
  PDJOB_CHECK(request.sampling.top_p > 0 && request.sampling.top_p <= 1);
  PDJOB_CHECK(request.sampling.repetition_penalty > 0);
  const size_t prompts = request.prompts.size() + request.token_prompts.size();
  PDJOB_CHECK(request.rids.empty() || request.rids.size() == prompts);
  PDJOB_CHECK(request.sampling.grammar.empty() || request.sampling.json_schema.empty());
  PDJOB_CHECK(request.sampling.regex.empty() || request.sampling.json_schema.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const auto kind :
       {openai::ApiKind::kChat, openai::ApiKind::kCompletion, openai::ApiKind::kSglang,
        openai::ApiKind::kTokens, openai::ApiKind::kEmbedding, openai::ApiKind::kResponses}) {
    const auto parsed = openai::parse_api_request(kind, body);
    if (!parsed) {
      PDJOB_CHECK(parsed.error().status == 400 && !parsed.error().message.empty());
      PDJOB_CHECK(!openai::error_body(parsed.error()).empty());
    } else {
      check_request(*parsed);
    }
  }
  if (const auto asked = openai::parse_abort(openai::AbortForm::kSglang, body)) {
    PDJOB_CHECK(asked->names.size() <= limits::kAbortNamesMax && asked->all == asked->means(""));
  }
  if (const auto vector = openai::parse_embedding(std::string(body))) {
    PDJOB_CHECK(!vector->empty() && vector->size() <= limits::kEmbeddingDimensionsMax);
  }
  return 0;
}
