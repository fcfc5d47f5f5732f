#include "router/core/verdict.h"

#include <string_view>

namespace pdjob::router {
namespace {

std::string_view meaning_of(int status) {
  if (status >= 300 && status < 400) {
    return ": it sends clients elsewhere, so its address is wrong";
  }
  switch (status) {
    case 401:
    case 403:
      return ": it refuses the key of its requests";
    case 404:
    case 405:
    case 501:
      return ": it lacks the path or the model that it was asked for";
    case 407:
      return ": a proxy before it wants a key";
    default:
      return "";
  }
}

}  // namespace

Verdict verdict_on(const AnswerHead& head) {
  const int status = head.status;
  if (status >= 200 && status < 300) {
    return Verdict::kGood;
  }
  if (status == 429 || (status == 503 && head.retry_after)) {
    return Verdict::kOverloaded;
  }
  if (status == 502 && head.fetches) {
    return Verdict::kHandOverFailed;
  }
  if (status == 404 || status == 405 || status == 501) {
    return Verdict::kNotServed;
  }
  if ((status >= 300 && status < 400) || status == 401 || status == 403 || status == 407) {
    return Verdict::kMisconfigured;
  }
  return status >= 400 && status < 500 ? Verdict::kClientError : Verdict::kFailed;
}

std::string answer_text(int status) {
  return "it answered " + std::to_string(status) + std::string(meaning_of(status));
}

}  // namespace pdjob::router
