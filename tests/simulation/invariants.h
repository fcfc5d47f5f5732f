// The invariants that hold after every event, and their checker. The first violation ends the run.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "common/id.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

class Invariants {
 public:
  template <class... Values>
  void expect(bool holds, const char* what, const Values&... values) {
    if (holds || broken()) {
      return;
    }
    std::ostringstream text;
    text << what;
    ((text << ' ' << values), ...);
    violation_ = text.str();
  }

  bool broken() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }

 private:
  std::string violation_;
};

// Watches one worker core from outside. Each request ends exactly once. One request at a time holds
// a sequence. It is not reused while a transfer may still read or write it, and is decoded only
// after its rows have come. A prompt reuses only rows of its own tenant.
class CoreWatch {
 public:
  struct Bounds {
    worker::EngineSize engine;
    uint32_t requests_queued = 0;
  };
  CoreWatch(Invariants& invariants, std::string name, Bounds bounds)
      : invariants_(invariants), name_(std::move(name)), bounds_(bounds) {}

  void before(const worker::Event& event);
  void after(const worker::Effect& effect);
  void check(const worker::CoreLoad& load);

  // Returns whether a transfer of this request may write these rows now.
  bool may_be_written(SequenceId sequence, RequestId request) const;
  bool alive(RequestId request) const { return requests_.contains(request); }
  // True when every sequence is free and every request has ended.
  bool idle() const { return requests_.empty() && owners_.empty() && exposed_.empty(); }

 private:
  struct Request {
    worker::RequestArrived asked;
    std::set<uint32_t> finished;  // The choices that have finished.
    bool fetched = false;
    bool cancelled = false;
    bool failed = false;
  };

  // Ignores all other events and effects.
  template <class Other>
  void on(const Other& /*what*/) {}
  void on(const worker::RequestArrived& event);
  void on(const worker::RequestCancelled& event);
  void on(const worker::RowsFetched& event);
  void on(const worker::FetchFailed& event);
  void on(const worker::FetchReleased& event) { hide(event.request); }
  void on(const worker::OfferEnded& event) { hide(event.request); }

  void on(const worker::RunStep& effect);
  void on(const worker::StartFetch& effect) { expose(effect.sequence, effect.request); }
  void on(const worker::StartOffer& effect) { expose(effect.sequence, effect.request); }
  void on(const worker::CommitOffer& effect);
  void on(const worker::SampleTail& effect);
  void on(const worker::ForkSequence& effect);
  void on(const worker::ClearSequence& effect) { release(effect.sequence); }
  void on(const worker::TrimSequence& effect) { release(effect.sequence); }
  void on(const worker::Deliver& effect);
  void on(const worker::FailRequest& effect);
  void on(const worker::EndRequest& effect);

  template <class... Values>
  void expect(bool holds, const char* what, const Values&... values) {
    invariants_.expect(holds, what, values..., "at", name_);
  }
  Request* find(RequestId request);
  void own(SequenceId sequence, RequestId request);
  void expose(SequenceId sequence, RequestId request);
  void hide(RequestId request);
  void release(SequenceId sequence);

  Invariants& invariants_;
  const std::string name_;
  const Bounds bounds_;
  std::map<RequestId, Request> requests_;  // Those that have not ended.
  std::map<SequenceId, RequestId>
      owners_;  // From a sequence's first use. A request may end before its transfer.
  // The prompt whose rows a sequence has. Empty: nobody may share them.
  std::map<SequenceId, worker::Prompt> written_by_;
  std::map<SequenceId, RequestId> exposed_;  // A transfer may read or write the rows.
};

}  // namespace pdjob::simulation
