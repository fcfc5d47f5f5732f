// PdjobStream: the record of a pdjob worker's stream. On request (x-pdjob-continue), such a worker
// adds the tokens of each chunk as a chunk extension: "t=CHOICE.TOKEN.TOKEN", and
// "t=end" with the last one. ";w=HEX" follows with the version of the weights that made them, where
// it is another one than before. The client gets whole chunks only, without extensions. So these
// tokens always match what the client has, and the next worker's first chunk follows directly.
//
// A chunk without tokens (of another engine), or larger than any event, ends the recording. The
// stream then passes unchanged and ends with its worker. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "router/streams/stream_record.h"

namespace pdjob::router {

class PdjobStream final : public StreamRecord {
 public:
  bool of_pdjob() const override { return true; }
  void take(std::string_view raw, std::string& out) override;
  Obstacle obstacle() const override {
    return state_ == State::kRecording && told_ ? Obstacle::kNone : Obstacle::kNoTokens;
  }
  bool complete() const override { return state_ == State::kComplete; }
  Resumption resumption() const override {
    return {.tokens = tokens_json(), .weights = weights_json()};
  }
  void change_worker() override { held_.clear(); }

  // The tokens of each choice so far, in the form of pdjob_resume: "[[1,2],[3]]".
  std::string tokens_json() const;
  // The weights that made them, in the form of pdjob_resume_weights; empty: they are not known.
  std::string weights_json() const;

 private:
  enum class State {
    kRecording,
    kComplete,
    kPassing,
  };

  // Takes one whole chunk off the front of `bytes`. Returns false if the chunk is incomplete, or
  // the stream passes.
  bool take_chunk(std::string_view& bytes, std::string& out);
  // Returns false if the extension is unknown.
  bool note(std::string_view extension);
  // The choice's tokens from `start` on were made by this version; empty: by the same as before.
  void note_weights(size_t choice, size_t start, std::string_view version);

  State state_ = State::kRecording;
  bool told_ = false;  // A chunk with tokens is through.
  size_t tokens_ = 0;
  // From token `start` on, a choice's tokens are of this version.
  struct Weights {
    std::string version;  // In hexadecimal.
    size_t start = 0;
  };
  std::vector<std::vector<Token>> choices_;
  std::vector<std::vector<Weights>> weights_;  // By choice.
  std::string held_;                           // The beginning of an incomplete chunk.
};

}  // namespace pdjob::router
