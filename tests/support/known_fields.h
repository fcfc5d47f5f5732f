// All fields that the parsers of requests know, in the order in which they look for them.
#pragma once

#include <string_view>
#include <vector>

#include "openai/openai.h"
#include "openai/openai_fields.h"
#include "openai/tokenize_request.h"

namespace pdjob::openai {

// A body with all objects inside which the parser looks for fields. Those of its own are not
// needed.
inline const char* sample_of(ApiKind kind) {
  switch (kind) {
    case ApiKind::kChat:
      return R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},
        {"role":"assistant","content":[{"type":"refusal","refusal":"a"},
        {"type":"thinking","thinking":"a"}],"tool_calls":[{"function":{"name":"f"}}]},
        {"role":"assistant","function_call":{"name":"f"}},{"role":"tool","content":"b"}],
        "tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{
        "mode":"auto","tools":[{"function":{"name":"f"}}]}},"stream":true,
        "chat_template_kwargs":{},"thinking":{"type":"enabled"},"presence_penalty":1,
        "stream_options":{},"response_format":{"type":"json_schema","json_schema":{"schema":{}}},
        "structured_outputs":{},"kv_transfer_params":{},"pdjob_resume":[[1]],
        "pdjob_resume_weights":[[{"version":"61","start":0,"end":1}]]})";
    case ApiKind::kCompletion:
      return R"({"prompt":"a","echo":true,"stream":true,"stream_options":{},"presence_penalty":1,
        "response_format":{"type":"json_schema","json_schema":{"schema":{}}},
        "structured_outputs":{},"kv_transfer_params":{},"pdjob_resume":[[1]],
        "pdjob_resume_weights":[[{"version":"61","start":0,"end":1}]]})";
    case ApiKind::kSglang:
      return R"({"text":"a","sampling_params":{},"kv_transfer_params":{},"pdjob_resume":[[1]],
        "pdjob_resume_weights":[[{"version":"61","start":0,"end":1}]]})";
    case ApiKind::kTokens:
      return R"({"token_ids":[1],"sampling_params":{"structured_outputs":{}},"stream_options":{},
        "kv_transfer_params":{},"pdjob_resume":[[1]],
        "pdjob_resume_weights":[[{"version":"61","start":0,"end":1}]]})";
    case ApiKind::kEmbedding:
      return R"({"input":"a"})";
    case ApiKind::kResponses:
      return R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},
        {"type":"function_call","name":"f"},{"type":"function_call_output","output":"b"}],
        "tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"},
        "stream":true,"stream_options":{},"text":{"format":{"type":"json_schema","schema":{}}},
        "reasoning":{},"presence_penalty":1,"structured_outputs":{},"kv_transfer_params":{},"pdjob_resume":[[1]],
        "pdjob_resume_weights":[[{"version":"61","start":0,"end":1}]]})";
  }
  return "{}";
}

// The sample, and others with the fields that it excludes.
inline std::vector<const char*> samples_of(ApiKind kind) {
  if (kind != ApiKind::kChat) {
    return {sample_of(kind)};
  }
  return {sample_of(kind),
          R"({"messages":[{"role":"user","content":"a"}],"tools":[{"function":{"name":"f"}}],
        "tool_choice":{"function":{"name":"f"}},"presence_penalty":1})",
          R"({"messages":[{"role":"user","content":"a"}],"functions":[{"name":"f"}],
        "function_call":{"name":"f"},"presence_penalty":1})"};
}

inline std::vector<KnownField> known_fields(ApiKind kind) {
  std::vector<KnownField> known;
  for (const char* sample : samples_of(kind)) {
    (void)parse_api_request(kind, sample, &known);
  }
  return known;
}
// Of POST /tokenize, if it has no conversation.
inline std::vector<KnownField> known_tokenize_fields() {
  std::vector<KnownField> known;
  (void)parse_tokenize_request(R"({"prompt":"a"})", &known);
  return known;
}
inline std::vector<KnownField> known_detokenize_fields() {
  std::vector<KnownField> known;
  (void)parse_detokenize_request(R"({"tokens":[1]})", 1, &known);
  return known;
}

}  // namespace pdjob::openai
