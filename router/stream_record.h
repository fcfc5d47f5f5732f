// StreamRecord: what must be known of a stream to go on with it at another worker. A pdjob worker
// that is asked to (x-pdjob-continue) tells with each chunk, in an extension of the chunk, which
// tokens it came from: "t=CHOICE.TOKEN.TOKEN", and "t=end" with the last one. The client gets whole
// chunks only, without extensions. So what it has is always what these tokens stand for, and the
// first chunk of the next worker follows it as that of the broken one would have.
//
// A chunk that tells nothing (of another engine), or is larger than any event, makes the stream one
// that passes as it comes and ends with its worker. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"

namespace pdjob::router {

class StreamRecord {
 public:
  // `raw` are the next bytes of a chunked body; appends to `out` what the client gets now.
  void take(std::string_view raw, std::string& out);

  // The worker is gone: can another one go on?
  bool resumable() const { return state_ == State::kRecording && told_; }
  // The last event is through, and so is the end of the framing, whatever becomes of the worker.
  bool complete() const { return state_ == State::kComplete; }
  // The tokens of each choice so far, as pdjob_resume says them: "[[1,2],[3]]".
  std::string tokens_json() const;
  // The body of another worker follows. Requires: resumable().
  void change_worker() { held_.clear(); }

 private:
  enum class State {
    kRecording,
    kComplete,
    kPassing,
  };

  // Takes one whole chunk off the front of `bytes`; false: it is not whole yet, or it passes.
  bool take_chunk(std::string_view& bytes, std::string& out);
  // False: the extension tells nothing that we know.
  bool note(std::string_view extension);

  State state_ = State::kRecording;
  bool told_ = false;  // A chunk with tokens is through.
  size_t tokens_ = 0;
  std::vector<std::vector<Token>> choices_;
  std::string held_;  // The beginning of a chunk.
};

}  // namespace pdjob::router
