// PdjobStream: the record of a pdjob worker's stream. On request (x-pdjob-continue), such a worker
// adds the tokens of each chunk as a chunk extension: "t=", and a note (told_tokens.h) or
// "end" with the last one. The client gets whole chunks only, without extensions. So these tokens
// always match what the client has, and the next worker's first chunk follows directly.
//
// A chunk without tokens (of another engine), or larger than any event, ends the recording. The
// stream then passes unchanged and ends with its worker. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "openai/replies/told_tokens.h"
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
    return {.tokens = tokens_.tokens_json(), .weights = tokens_.weights_json()};
  }
  void change_worker() override { held_.clear(); }

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

  State state_ = State::kRecording;
  bool told_ = false;  // A chunk with tokens is through.
  openai::ToldTokens tokens_;
  std::string held_;  // The beginning of an incomplete chunk.
};

}  // namespace pdjob::router
