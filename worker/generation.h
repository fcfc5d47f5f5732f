// What the loop thread and the engine thread of a worker tell each other. Values; moved, never
// shared.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "engine/sampler.h"
#include "kvtransfer/kv_endpoint.h"
#include "worker/worker_core.h"

namespace pdjob::worker {

// One prompt and its choices, ready to run: token ids are in range, the prompt fits, grammars are
// compiled.
struct GenerationRequest {
  RequestId id;
  std::string tenant;  // Whose it is; empty: there are no tenants.
  std::vector<Token> prompt;
  std::vector<std::unique_ptr<engine::Sampler>> samplers;  // One per choice.
  // A generation that began elsewhere goes on: what each choice has generated there, its end token
  // included. Empty: none does.
  std::vector<std::vector<Token>> resumed;
  StopParams stop;
  bool ignore_eos = false;
  bool shares_prompt = true;  // With prompts that begin alike; else it is computed whole.
  KvMode kv = KvMode::kLocal;
  TransferId transfer;               // Of kOffer and kFetch, as routers name it.
  TransferId link_transfer;          // As KV links do (transfer_binding.h); EngineThread makes it.
  bool two_hop = false;              // Of kOffer: RequestArrived::two_hop.
  kvtransfer::EndpointAddress peer;  // Of kFetch.
  Instant deadline = kNever;
};

// --- engine thread -> loop thread

struct TokenOutput {
  RequestId request;
  uint32_t choice = 0;
  GeneratedToken token;
  std::string text;      // What may be shown now: may be empty, or more than this token's.
  bool shown = true;     // False: an end token, which is counted but not part of the text.
  bool resumed = false;  // It is known already: whoever asked to go on has it.
  FinishReason finish = FinishReason::kNone;
};
struct KvFetched {  // Before the first TokenOutput of a kFetch request.
  RequestId request;
  uint64_t bytes = 0;
  Duration duration{};
  Duration visible{};
  std::string transport;
};
struct PromptReused {  // Of a prompt that is computed here, when it begins.
  RequestId request;
  uint32_t prompt_tokens = 0;
  uint32_t rows = 0;  // That were there already.
};
struct RequestFailed {
  RequestId request;
  Error error;
  std::string kv_suspect;  // The engine whose rows come damaged again and again; empty: none.
};
struct WorkerDrained {};

using Output = std::variant<TokenOutput, KvFetched, PromptReused, RequestFailed, WorkerDrained>;

// All outputs of one turn of the engine thread, and the load after it.
struct OutputBatch {
  std::vector<Output> outputs;
  std::vector<ReportKept> kept;
  CoreLoad load;
};

}  // namespace pdjob::worker
