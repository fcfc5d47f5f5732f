// The bodies of SGLang's POST /abort_request and of vLLM's POST /abort_requests, which end requests
// before their time. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "common/result.h"
#include "openai/openai.h"

namespace pdjob::openai {

struct AbortRequest {
  std::set<std::string, std::less<>> names;
  bool all = false;

  // True for all, for a name, and for a numbered one of a name's batch: "name_3".
  bool means(std::string_view rid) const;
  // True for all, and for this name itself.
  bool means_exactly(std::string_view name) const { return all || names.contains(name); }
  // The part that means the request with this x-pdjob-leg: all of it, or names of its prompts.
  AbortRequest part_of(std::string_view leg) const;
};
// The name of one prompt of a request: LEG/INDEX.
std::string leg_prompt(std::string_view leg, size_t prompt);

enum class AbortForm {
  kSglang,  // {"rid": NAME or a list of them, "abort_all": BOOL}. An empty name means nothing.
  kVllm,    // {"request_ids": [NAME, ...]}; without the list, or an empty body: all.
};
Result<AbortRequest, ApiError> parse_abort(AbortForm form, std::string_view body);
// The body of SGLang's form.
std::string abort_request_body(const AbortRequest& request);
// The body of the answer: SGLang's is empty, vLLM's has the count of requests that were ended.
std::string abort_answer(AbortForm form, size_t count);

}  // namespace pdjob::openai
