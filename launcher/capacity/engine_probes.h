// EngineProbes: measures a running engine of any make by requests of OpenAI's API: prompts by
// length and number, decoding by streams and context, KV transfers by length. Loop-bound; run()
// runs the loop until it is done.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/capacity/probe_client.h"
#include "launcher/capacity/probe_plan.h"
#include "launcher/capacity/step_fit.h"

namespace pdjob::launcher {

struct ProbedServers {
  ProbeTarget prompts;                // A worker, or a router.
  std::optional<ProbeTarget> decode;  // A decode worker: it decodes, and takes KV of the other.
};

struct ProbeOptions {
  Duration budget = std::chrono::minutes(2);
  std::string model;          // As the API calls it; empty: its only one.
  uint32_t chunk_tokens = 0;  // Of prompts in one step of the engine; 0: unknown.
  uint64_t seed = 1;
};

struct ProbedEngine {
  std::string model;
  std::string engine;  // "vllm 0.32.0"
  std::vector<StepProbe> steps;
  std::vector<TransferProbe> transfers;
  std::vector<std::string> notes;
};

class EngineProbes {
 public:
  // `tell` is called before each measurement, with its name and the share of all that is done.
  using Tell = std::function<void(const std::string& name, double share)>;

  EngineProbes(net::EventLoop& loop, ProbedServers servers, ProbeOptions options, Tell tell);

  // kCancelled: stop(). Otherwise the error says what to do.
  Result<ProbedEngine> run();
  void stop() { client_.stop(); }

 private:
  // How a measurement ended, if not with a figure.
  enum class Miss : uint8_t { kTooLong, kTooMany, kUseless };
  struct Measured {
    StepWork work;
    double seconds = 0;
  };
  template <class T>
  using Figure = Result<std::variant<T, Miss>>;

  Status learn_engine();
  Status learn_prompts();
  Status measure(const WantedProbe& wanted);
  Figure<std::vector<ProbeReply>> replies_of(std::vector<ProbeAsk> asks);
  Figure<Measured> measure_prompts(const WantedProbe& wanted);
  Figure<Measured> measure_decode(const WantedProbe& wanted);
  Figure<Measured> measure_mixed(const WantedProbe& wanted);
  Figure<TransferProbe> measure_transfer(const WantedProbe& wanted);

  ProbeAsk ask_of(const ProbeTarget& to, uint32_t tokens, uint32_t output_tokens);
  // The same prompts again, with more output.
  std::vector<ProbeAsk> prompts_again(const std::vector<ProbeAsk>& asks, uint32_t output_tokens);
  void add_prompt(StepWork& work, const ProbeReply& reply) const;
  void note(const WantedProbe& wanted, const Measured& measured);

  const ProbeTarget& decoder() const {
    return servers_.decode ? *servers_.decode : servers_.prompts;
  }

  net::EventLoop& loop_;
  ProbeClient client_;
  const ProbedServers servers_;
  ProbeOptions options_;
  const Tell tell_;
  ProbePrompts prompts_;
  std::optional<ProbePlan> plan_;
  Instant deadline_{};
  ProbedEngine engine_;
  std::map<WantedProbe, size_t> steps_at_;  // In engine_.steps.
  std::map<WantedProbe, uint32_t> output_of_;
  std::string last_refusal_;
  size_t refused_in_a_row_ = 0;
  bool transfers_fail_ = false;
};

}  // namespace pdjob::launcher
