// The body of POST /v1/batches. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/time.h"
#include "openai/openai.h"

namespace pdjob::batch {

struct BatchRequest {
  std::string input_file_id;
  std::string endpoint;
  std::string completion_window;  // As the client wrote it: "24h".
  int64_t window_seconds = 0;
  std::string metadata;                    // A JSON object; empty: none.
  std::optional<int64_t> output_lifetime;  // Seconds.
};

// `window_max`: the longest completion window.
Result<BatchRequest, openai::ApiError> parse_batch_request(std::string body, Duration window_max);

}  // namespace pdjob::batch
