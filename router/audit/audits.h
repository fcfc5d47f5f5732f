// Audits: which answers are computed a second time, when, and what the comparison means. An engine
// that got wrong KV answers fluently, with status 200 (vllm-project/vllm#52234,
// sgl-project/sglang#23020). Only another computation of the same prompt shows it.
//
//   answered --> [waiting] --> [running] --> equal, tie, differs, or failed
//                    |
//                    +-- too many, or for too long: dropped
//
// One audit runs at a time, while no request waits and each worker has at most one. Pure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/time.h"
#include "openai/replies/reply_text.h"
#include "router/config/audit_config.h"
#include "router/relay/router_metrics.h"

namespace pdjob::router {

// An answer, and the request that computes it again.
struct Audited {
  std::string request_id;
  std::string prefill;  // Names of workers.
  std::string decode;
  std::string path;
  std::string body;
  std::string content_type;  // Of the answer.
  std::string answer;
  uint32_t tenant = 0;
};

struct Finding {
  AuditResult result = AuditResult::kFailed;
  size_t position = 0;  // Of the first other token.
  double margin = 0;    // Of the token there, in the second computation.
};

// The request that computes the answer again: not streamed, and with logprobs. Empty: it cannot be
// audited, because it is not greedy, has several answers, or asks for more than text.
std::optional<std::string> audit_body(std::string_view path, const std::string& body);
// The worker may have kept the rows that are to be audited: with a salt of its own, a prompt shares
// no kept rows.
std::string with_salt(const std::string& body, uint64_t salt);
Finding compare(const openai::ReplyText& first, const openai::ReplyText& second, double tie);

class Audits {
 public:
  static constexpr size_t kWaitingMax = 16;
  static constexpr Duration kWaitMax = std::chrono::minutes(1);
  static constexpr Duration kRemembered = std::chrono::minutes(10);

  explicit Audits(const AuditConfig& config) : config_(config) {}

  // `chance`: 64 random bits.
  bool chooses(uint64_t chance) const;
  // Returns how many were dropped for it.
  size_t add(Audited audited, Instant now);
  // Returns how many waited for too long.
  size_t expire(Instant now);
  // The next one, if it may run now. It runs until ended().
  std::optional<Audited> next(bool is_quiet);
  // Returns true if the pair is to be avoided.
  bool ended(const Audited& audited, const Finding& finding, Instant now);
  size_t waiting() const { return waiting_.size(); }
  double tie() const { return config_.tie; }

 private:
  struct Waiting {
    Audited audited;
    Instant since;
  };
  const AuditConfig config_;
  std::deque<Waiting> waiting_;
  bool running_ = false;
  std::map<std::pair<std::string, std::string>, std::deque<Instant>> mismatches_;  // By pair.
};

}  // namespace pdjob::router
