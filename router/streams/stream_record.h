// StreamRecord: what another worker needs to continue a stream. It reads a worker's body on its way
// to the client, and takes out what is not for the client. pdjob_stream.h and engine_stream.h say
// how workers tell their tokens. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob::router {

// Why a stream cannot continue, for a metric; what exactly, for the log.
enum class Obstacle : uint8_t {
  kNone,
  kOff,        // router.continuations is 0 or used up, or the client cannot read a changed framing.
  kNoTokens,   // The worker tells no tokens.
  kChoices,    // Several choices or prompts, a beam search, or a prompt that is read.
  kStructure,  // The engine's own state decides what may follow: structured output.
  kTools,
  kReasoning,
  kText,      // The engine looks for stop strings in the text, which may lag behind the tokens.
  kSampling,  // Penalties count the tokens so far, or a seed decides draws by their number.
  kMember,    // The request has a member that pdjob does not know.
  kDiffers,   // Another worker, asked the same, wrote other tokens.
};
inline constexpr uint8_t kObstacles = 11;
// A word, such as "no_tokens".
std::string_view to_string(Obstacle obstacle);

// How it is asked to go on.
struct Resumption {
  // In a decode leg of the client's request: pdjob_resume and pdjob_resume_weights.
  std::string tokens;
  std::string weights;
  // Another request in place of the client's; empty: the client's own.
  std::string target;
  std::string body;
};

class StreamRecord {
 public:
  StreamRecord() = default;
  virtual ~StreamRecord() = default;
  StreamRecord(const StreamRecord&) = delete;
  StreamRecord& operator=(const StreamRecord&) = delete;

  // True if it reads bodies of pdjob's workers; false: of engines of other makes.
  virtual bool of_pdjob() const = 0;
  // `raw`: the next bytes of a chunked body. Appends to `out` what the client gets now.
  virtual void take(std::string_view raw, std::string& out) = 0;
  // kNone: another worker could continue, once this one is gone.
  virtual Obstacle obstacle() const = 0;
  bool resumable() const { return obstacle() == Obstacle::kNone; }
  // True once the last event and the end of the framing are through. A loss of the worker then does
  // not matter.
  virtual bool complete() const = 0;
  // The worker is gone. If the client has all tokens, appends what else it lacks; complete() then.
  virtual void finish(std::string& /*out*/) {}
  // True once the worker said that it cannot go on: its body is not to be read further.
  virtual bool broken() const { return false; }
  // The client has a token of it.
  virtual bool begun() const { return true; }
  // Requires: resumable().
  virtual Resumption resumption() const = 0;
  // The next bytes are another worker's body. Requires: resumable().
  virtual void change_worker() = 0;
};

}  // namespace pdjob::router
