// The requests of clients, and their outcomes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/id.h"
#include "common/random.h"
#include "common/time.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/toy_engine.h"

namespace pdjob::simulation {

// The sampler of a poisoned request fails at this token of each choice.
inline constexpr uint32_t kPoisonedToken = 3;

// The action on a request that crashes its worker.
enum class Kills { kNobody, kPrompt, kToken };

struct Ask {
  RequestId id;
  std::string model;
  ToyPrompt prompt;
  bool stream = false;
  bool poisoned = false;  // Its sampler fails on any worker.
  Kills kills = Kills::kNobody;
  Instant arrives;
  Instant leaves = kNever;  // When the client loses patience.
};

struct WorkloadShape {
  std::vector<std::string> models = {"m"};  // Requests name them in turn.
  uint32_t asks = 40;
  Duration duration = std::chrono::seconds(2);
  uint32_t prompt_tokens_max = 60;
  uint32_t max_tokens_max = 30;
  uint32_t choices_max = 3;
  double leaving = 0.1;  // The share of clients that leave early.
  double poisoned = 0.0;
  Kills killer = Kills::kNobody;  // Applies to one of the asks.
  uint32_t families = 0;          // How many families of prompts share a beginning; 0: none.
};
std::vector<Ask> make_workload(const WorkloadShape& shape, Instant start, uint64_t seed);

// The clients' side. Each request ends exactly once. A complete one has the reference's tokens.
class Clients {
 public:
  Clients(Invariants& invariants, const std::vector<Ask>& asks, uint32_t rows_per_sequence);

  const Ask& ask(RequestId id) const { return rows_.at(id).ask; }
  bool waiting(RequestId id) const { return !rows_.at(id).ended; }
  // The reply's status comes first, then its tokens.
  void on_status(RequestId id, int status);
  void on_token(RequestId id, uint32_t choice, Token token, FinishReason finish);
  // Each request has exactly one of these ends.
  void on_complete(RequestId id);
  void on_refused(RequestId id, int status);
  void on_aborted(RequestId id);
  void on_left(RequestId id);

  // The router sees a connection break because the worker crashed at this request.
  void on_kill(RequestId id, Incarnation worker);
  // The connection breaks without a crash. If its worker crashes soon after, the two look the same.
  void on_connection_broken(RequestId id) { rows_.at(id).broke = true; }

  uint32_t waiting_count() const { return static_cast<uint32_t>(rows_.size()) - ended_; }
  std::string list_waiting() const;
  struct Counts {
    uint32_t served = 0, failed = 0, refused = 0, aborted = 0, left = 0;
    uint32_t kills = 0, blamed = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Client {
    Ask ask;
    int status = 0;
    std::vector<ToyText> texts;
    bool ended = false;
    std::set<Incarnation> killed;
    bool broke = false;
  };
  Client& end(RequestId id);
  void check_status(RequestId id, int status);

  Invariants& invariants_;
  const uint32_t rows_per_sequence_;
  std::map<RequestId, Client> rows_;
  uint32_t ended_ = 0;
  // The killer may still kill until its worker learns that the client left.
  bool killer_left_ = false;
  Counts counts_;
};

}  // namespace pdjob::simulation
