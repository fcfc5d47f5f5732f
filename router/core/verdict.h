// What the head of a worker's reply means: for the worker, for the request, and for the client.
// docs/explanation/faults.md has the same table, for people. Pure.
#pragma once

#include <string>

namespace pdjob::router {

enum class Verdict {
  kGood,
  kClientError,     // The request is bad: any worker would answer so. The client gets the answer.
  kMisconfigured,   // The worker refuses whatever this router sends: its operator must mend it.
  kNotServed,       // The worker lacks this path or model; another one may have it.
  kOverloaded,      // Healthy, but at its limit.
  kHandOverFailed,  // A decode worker did not get the KV. One of the two is at fault.
  kFailed,          // The worker's fault, unless the request breaks every worker.
};

struct AnswerHead {
  int status = 0;
  bool retry_after = false;  // It has Retry-After. With 503, that means "overloaded".
  bool fetches = false;      // The worker was to fetch KV.
};

Verdict verdict_on(const AnswerHead& head);
// Another worker is asked without drawing on the retry budget: nothing has been computed.
constexpr bool is_free_to_retry(Verdict verdict) {
  return verdict == Verdict::kMisconfigured || verdict == Verdict::kNotServed;
}

// For an operator: "it answered 401: it refuses this router's key".
std::string answer_text(int status);

}  // namespace pdjob::router
