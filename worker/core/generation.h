// Messages between the loop thread and the engine thread of a worker. Values: moved, never shared.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "engine/sampler.h"
#include "kvtransfer/kv_endpoint.h"
#include "worker/core/prompt_reader.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

// One prompt and its choices, ready to run: token ids are in range, the prompt fits, grammars are
// compiled.
struct GenerationRequest {
  RequestId id;
  RequestId group;       // RequestArrived::group.
  std::string log_name;  // What its reply and log lines call it: the router's x-request-id.
  std::string tenant;    // The owner; empty if there are no tenants.
  std::vector<Token> prompt;
  std::vector<std::unique_ptr<engine::Sampler>> samplers;  // One per choice; null if prompt_only.
  // Per choice, the tokens that another worker generated, end token included, if this one continues
  // the generation. Empty for a new generation. A request in the background has those
  // generated here, too: it needs them if it gives its sequence back.
  std::vector<std::vector<Token>> resumed;
  StopParams stop;
  bool ignore_eos = false;
  PromptReading reading = PromptReading::kNothing;
  uint32_t prompt_alternatives = 0;  // Per token, for kLogprobs.
  // No token is generated: one TokenOutput without a token ends each choice.
  bool prompt_only = false;
  // Shares rows with prompts that have the same beginning. If false, all of it is computed.
  bool shares_prompt = true;
  KvMode kv = KvMode::kLocal;
  TransferId transfer;               // For kOffer and kFetch: the router's name of it.
  TransferId link_transfer;          // The name on KV links. bound() sets it.
  bool two_hop = false;              // For kOffer: RequestArrived::two_hop.
  kvtransfer::EndpointAddress peer;  // For kFetch.
  std::optional<kvtransfer::EndpointAddress> store;      // The store of KV on this node.
  std::optional<kvtransfer::EndpointAddress> elsewhere;  // One that may have more of the prompt.
  bool background = false;                               // RequestArrived::background.
  Instant deadline = kNever;
};

// Sets the name of the request's transfer on KV links (transfer_binding.h). Must come before the
// engine takes the request. Hashes the prompt.
GenerationRequest bound(GenerationRequest request);

// --- engine thread -> loop thread

struct TokenOutput {
  RequestId request;
  uint32_t choice = 0;
  GeneratedToken token;
  std::string text;       // Text to show now. May be empty, or include earlier tokens' text.
  bool shown = true;      // False for an end token: counted, but not part of the text.
  bool resumed = false;   // Generated elsewhere: the asker has it already.
  bool no_token = false;  // GenerationRequest::prompt_only.
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;  // The one that ended the choice; empty: none did.
};
struct KvFetched {  // Before the first TokenOutput of a kFetch request.
  RequestId request;
  uint64_t bytes = 0;
  Duration duration{};
  Duration visible{};
  std::string transport;
  uint32_t prompt_reused = 0;  // Rows that the prefill worker did not compute for this request.
};
struct PromptReused {  // Sent when a prompt's computation begins here.
  RequestId request;
  uint32_t prompt_tokens = 0;
  uint32_t rows = 0;  // Rows that existed already.
};
struct PromptScored {  // Before the first TokenOutput.
  RequestId request;
  PromptLogprobs logprobs;
};
struct PromptEmbedded {  // The same.
  RequestId request;
  std::vector<float> embedding;  // Of length 1.
};
struct RequestFailed {
  RequestId request;
  Error error;
  std::string kv_suspect;  // The engine whose rows arrive damaged repeatedly; empty if none.
};
struct WorkerDrained {};

using Output = std::variant<TokenOutput, KvFetched, PromptReused, PromptScored, PromptEmbedded,
                            RequestFailed, WorkerDrained>;

// All outputs of one turn of the engine thread, and the load after it.
struct OutputBatch {
  std::vector<Output> outputs;
  std::vector<ReportKept> kept;
  CoreLoad load;
  EngineWork work;
};

}  // namespace pdjob::worker
