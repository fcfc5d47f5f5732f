// The requests that measure an engine, and what its streams say: OpenAI's completions. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/random.h"
#include "common/result.h"

namespace pdjob::launcher {

// ProbePrompts: prompts of about so many tokens, no two of which begin alike. So no prefix cache
// helps, except with a prompt that is sent again. Value.
class ProbePrompts {
 public:
  explicit ProbePrompts(uint64_t seed) : random_(seed) {}

  std::string prompt(uint32_t tokens);
  // What the server made of a prompt; later prompts come closer to what was asked for.
  void learn(const std::string& prompt, uint32_t tokens);

 private:
  Random random_;
  double tokens_per_word_ = 1;
};

struct ProbeRequest {
  std::string model;
  std::string prompt;
  uint32_t output_tokens = 1;
  // Of vLLM's two-hop protocol, as JSON; empty: none.
  std::string kv_transfer_params;
  bool stream = true;
};
std::string body_of(const ProbeRequest& request);

// The members for the prefill worker of a hand-over.
inline constexpr std::string_view kPrefillLegParams =
    R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,)"
    R"("remote_block_ids":null,"remote_host":null,"remote_port":null})";
// The same of the reply, for the decode worker. kUnsupported: the reply has none.
Result<std::string> transfer_params_of(const std::string& reply);

struct ProbeUsage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
};

// ProbeEvents: cuts a stream of server-sent events, and reads from each what a measurement needs.
// Value.
class ProbeEvents {
 public:
  struct Seen {
    uint32_t tokens = 0;  // Events with output, among the bytes that were added.
    std::string error;    // The first one that the server reported.
  };
  Seen add(std::string_view bytes);
  // Of the last event that has it.
  const std::optional<ProbeUsage>& usage() const { return usage_; }
  bool done() const { return done_; }

 private:
  void take(std::string_view line, Seen& seen);

  std::string rest_;
  std::optional<ProbeUsage> usage_;
  bool done_ = false;
};

std::optional<ProbeUsage> usage_of_reply(const std::string& reply);

// What a reply with an error status says to a person: its `message`, or its first line.
std::string refusal_text(int status, const std::string& body);

}  // namespace pdjob::launcher
