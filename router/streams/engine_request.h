// EngineRequest: a client's request to an engine of another make, and the request by which another
// such engine goes on with its stream. There are two ways:
//
//   by tokens   The prompt's tokens and the stream's so far are the new prompt. Each draw that
//               follows is of the same distribution; with temperature 0, it is the same token, up
//               to what the engine's batch invariance allows.
//   by replay   The same request again. Its tokens must be those that the client has, and are left
//               out up to there. For requests whose next tokens depend on more than the tokens
//               before. Only with temperature 0 or a seed.
//
// A request with a member that is not known here is never continued by tokens. The engines' forms:
// vllm/entrypoints/openai/{completion,chat_completion}/protocol.py of vllm-project/vllm 0.32, and
// python/sglang/srt/entrypoints/openai/protocol.py of sgl-project/sglang 0.5. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "router/streams/stream_record.h"

namespace pdjob::router {

struct EngineFacts {
  bool sglang = false;       // False: vLLM's words.
  uint32_t context_max = 0;  // WorkerEntry::context_max
};

// True if parts of these messages (as JSON) change the KV without changing the tokens.
bool has_more_than_text(std::string_view messages);

class EngineRequest {
 public:
  // `body` is one JSON object, and outlives the request. Paths other than those of completions and
  // chats have an obstacle.
  static EngineRequest read(std::string_view target, const std::string& body,
                            const EngineFacts& engine);
  static EngineRequest read(std::string_view target, std::string&& body,
                            const EngineFacts& engine) = delete;

  // Why it cannot continue by tokens; kNone: it can.
  Obstacle obstacle() const { return obstacle_; }
  // It cannot be answered twice alike, or nobody could tell: not even by replay.
  bool may_replay() const { return may_replay_; }
  bool is_chat() const { return chat_; }
  bool wants_tokens() const { return wants_tokens_; }  // It asks for token ids itself.
  bool wants_usage() const { return wants_usage_; }
  bool wants_logprobs() const { return wants_logprobs_; }
  // The request of by_tokens() is one for a completion, though this one is a chat.
  bool is_converted() const { return chat_ && !engine_.sglang; }

  // Lists of token ids without brackets, and how many they are.
  struct Tokens {
    std::string_view prompt;
    uint64_t prompt_count = 0;
    std::string_view output;
    uint64_t output_count = 0;
  };
  // False: they reach the request's limit.
  bool may_follow(const Tokens& tokens) const { return left_behind(tokens) != 0; }
  // Requires: may_follow().
  Resumption by_tokens(const Tokens& tokens) const;
  Resumption by_replay() const;

 private:
  struct Reading;
  // How many tokens may follow; empty: as many as the engine likes.
  std::optional<uint64_t> left_behind(const Tokens& tokens) const;

  std::string target_;
  const std::string* body_ = nullptr;
  EngineFacts engine_;
  bool chat_ = false;
  Obstacle obstacle_ = Obstacle::kNone;
  bool may_replay_ = false;
  bool wants_tokens_ = false;
  bool wants_usage_ = false;
  bool wants_logprobs_ = false;
  std::optional<uint64_t> output_max_;
  uint64_t output_min_ = 0;
};

}  // namespace pdjob::router
