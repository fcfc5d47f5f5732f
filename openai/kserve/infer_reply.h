// Replies of KServe's Open Inference Protocol (v2). Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/result.h"
#include "openai/kserve/infer_request.h"
#include "openai/openai.h"

namespace pdjob::openai {

struct InferReply {
  std::string body;
  size_t json_bytes = 0;  // Of the body; binary tensors follow.
  bool has_binary() const { return json_bytes < body.size(); }
};
// `completion`: the worker's answer to InferRequest::completion. kCorrupt as an ApiError of 502:
// what was asked is not in it.
Result<InferReply, ApiError> infer_reply(const InferRequest& request, std::string_view completion);

// {"error": "..."}, with the message of an error in OpenAI's form.
std::string infer_error(std::string_view error_body);

std::string kserve_server_body();
std::string kserve_model_body(std::string_view model);

}  // namespace pdjob::openai
