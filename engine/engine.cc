#include "engine/engine.h"

#include <string>

#include "common/limits.h"
#include "engine/fake_engine.h"
#include "engine/llama_engine.h"

namespace pdjob::engine {

Result<std::unique_ptr<Engine>> open_engine(const EngineConfig& config) {
  if (config.sequences == 0 || config.sequences > limits::kSequencesMax || config.threads == 0 ||
      config.tokens_per_sequence == 0 || config.batch_tokens < config.sequences) {
    return Error{ErrorCode::kInvalidArgument, "the engine's configuration is out of bounds"};
  }
  switch (config.kind) {
    case EngineKind::kLlama:
      return open_llama_engine(config);
    case EngineKind::kFake:
      return open_fake_engine(config);
    case EngineKind::kForeign:
      break;  // A process of its own (worker/foreign).
  }
  return Error{ErrorCode::kUnsupported, "no such engine"};
}

}  // namespace pdjob::engine
