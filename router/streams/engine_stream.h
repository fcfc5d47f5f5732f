// EngineStream: the record of a stream of vLLM or SGLang. The engine is asked for token ids
// (`return_token_ids`), which come in each event and are taken out again. An event whose tokens
// made no text yet is held back until one has made some: a character may consist of several tokens,
// and another worker could not write its end. So the client's text always ends where the tokens
// that are kept end.
//
// A stream without token ids passes, and ends with its worker. An engine says in an event that it
// has failed; the client does not see that event if another worker can go on. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http/http_parser.h"
#include "router/streams/engine_event.h"
#include "router/streams/engine_request.h"
#include "router/streams/stream_record.h"

namespace pdjob::router {

class EngineStream final : public StreamRecord {
 public:
  explicit EngineStream(EngineRequest request) : request_(std::move(request)) {}

  bool of_pdjob() const override { return false; }
  void take(std::string_view raw, std::string& out) override;
  Obstacle obstacle() const override;
  bool complete() const override { return state_ == State::kEnded; }
  void finish(std::string& out) override;
  bool broken() const override { return state_ == State::kBroken; }
  bool begun() const override { return !anew(); }
  Resumption resumption() const override;
  void change_worker() override;

 private:
  enum class State : uint8_t {
    kRecording,
    kPassing,
    kComplete,  // The last event is through.
    kEnded,     // So is the end of the framing: the client may send its next request.
    kBroken
  };
  // How the present worker writes.
  enum class Mode : uint8_t {
    kFirst,     // It has the client's request.
    kByTokens,  // It goes on.
    kReplay,    // It repeats what the client has.
    kRepeated,  // It has done so, and goes on.
  };

  void take_event(std::string_view event);
  EngineEvent read(std::string_view data);
  void take_data(std::string_view data);
  void keep(std::string_view data, const EngineEvent& event, std::string_view numbers);
  std::optional<std::string> repeat(std::string_view data, const EngineEvent& event,
                                    std::string_view numbers);
  void release();
  void end_of_events();
  bool by_tokens() const;
  EngineRequest::Tokens tokens() const;
  // The client has no token yet.
  bool anew() const { return count_ == 0; }
  Obstacle tokens_obstacle() const;
  StreamFacts continued() const;
  void frame(std::string& out);

  const EngineRequest request_;
  State state_ = State::kRecording;
  Mode mode_ = Mode::kFirst;
  net::ChunkDecoder decoder_;
  std::string text_;     // Received, and not yet a whole event.
  std::string payload_;  // For the client, not yet framed.

  std::string head_;    // The beginning of each event, up to its choices.
  std::string first_;   // The first event.
  std::string prompt_;  // Numbers of tokens.
  std::string tokens_;  // Those of events that the client has.
  uint64_t count_ = 0;
  std::string held_;  // Events, and their tokens.
  std::string held_tokens_;
  uint32_t held_events_ = 0;
  std::string logprobs_;  // The last event with logprobs.
  // Tokens, and bytes of text, that the present worker has repeated; and those of the client.
  std::string repeated_;
  size_t repeated_text_ = 0;
  size_t text_bytes_ = 0;
  uint64_t tokens_before_ = 0;  // Of the present worker.
  uint64_t text_before_ = 0;
  bool passes_text_ = false;  // The client has events of an answer that told no tokens.
  bool reasons_ = false;      // The last text was of reasoning.
  bool calls_ = false;        // A tool is called.
  bool differs_ = false;
  bool finished_ = false;  // The last token is through.
  bool has_usage_ = false;
};

}  // namespace pdjob::router
