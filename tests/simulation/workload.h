// The requests of clients. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/time.h"

namespace pdjob::simulation {

// An engine that computes this token crashes. No other request has it.
inline constexpr Token kKillingToken = 7;

// The killer crashes its worker by a token of its prompt, or by each token that it generates.
enum class Kills { kNobody, kPrompt, kToken };

struct Ask {
  RequestId id;
  std::string model;
  std::vector<Token> prompt;
  uint32_t max_tokens = 1;
  uint32_t choices = 1;
  uint64_t seed = 0;
  bool stream = false;
  uint32_t tenant = 0;  // From 1 on; 0: the job has none.
  bool asynchronous = false;
  bool background = false;
  Kills kills = Kills::kNobody;
  Instant arrives;
  Instant leaves = kNever;  // When the client loses patience.
};

// The text of one choice, as a client gets it.
struct SimText {
  std::string text;
  std::string finish;  // finish_reason; empty: not at its end.
  friend bool operator==(const SimText&, const SimText&) = default;
};

struct WorkloadShape {
  std::vector<std::string> models = {"m"};  // Requests name them in turn.
  uint32_t asks = 40;
  Duration duration = std::chrono::seconds(2);
  uint32_t prompt_tokens_max = 60;
  uint32_t max_tokens_max = 30;
  uint32_t choices_max = 3;
  double leaving = 0.1;           // The share of clients that leave early.
  Kills killer = Kills::kNobody;  // Applies to one of the asks.
  uint32_t families = 0;          // How many families of prompts share a beginning; 0: none.
  uint32_t tenants = 0;
  double asynchronous = 0;  // Shares of the requests.
  double repeats = 0;
  double background = 0;
};
std::vector<Ask> make_workload(const WorkloadShape& shape, Instant start, uint64_t seed);

}  // namespace pdjob::simulation
