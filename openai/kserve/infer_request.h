// Requests of KServe's Open Inference Protocol (v2) to infer, as requests for completions.
// docs/how-to/kserve.md lists their tensors and parameters. Pure.
// https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "openai/openai.h"

namespace pdjob::openai {

// A header of requests and replies with binary tensors: how many bytes of the body are JSON.
inline constexpr std::string_view kInferJsonBytes = "inference-header-content-length";

inline constexpr std::string_view kTextInput = "text_input";
inline constexpr std::string_view kTokenInput = "input_ids";
inline constexpr std::string_view kTextOutput = "text_output";
inline constexpr std::string_view kTokenOutput = "output_ids";

struct InferOutput {
  bool tokens = false;  // kTokenOutput; otherwise kTextOutput.
  bool binary = false;
};
struct InferRequest {
  std::string completion;  // The body of POST /v1/completions.
  std::string model;
  std::string id;  // Of the request, for its reply; empty: none.
  std::vector<InferOutput> outputs;
};

// The first `json_bytes` of the body are JSON.
Result<InferRequest, ApiError> parse_infer(std::string_view model, std::string_view body,
                                           size_t json_bytes);

}  // namespace pdjob::openai
