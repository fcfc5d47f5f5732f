// Events and effects of worker cores as short words, such as "offer r1 s0", "run s0:r1[0+8]",
// "deliver r1.0 stop". With them a test reads as a story, and so does a simulation's trace.
#pragma once

#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "worker/core/worker_core.h"

namespace pdjob::worker {

using Words = std::vector<std::string>;

class Wording {
 public:
  // --- effects

  // "s0:r1.0" (sequence, request, choice) is the newest token of a choice. "s0:r1.0[3+4]" (first,
  // count) are several tokens of a continued choice, "*1" with its last one. "s0:r1[8+4]" are
  // prompt tokens, "*2" if two choices are sampled from the last of them.
  std::string operator()(const RunStep& e) const {
    std::ostringstream out;
    out << "run";
    for (const BatchItem& item : e.items) {
      out << " s" << item.sequence << ":r" << item.request;
      const bool several = item.prompt || item.count > 1 || item.samples == 0;
      if (!item.prompt) {
        out << '.' << item.choice;
      }
      if (several) {
        out << '[' << item.first << '+' << item.count << ']';
      }
      if (several && item.samples > 0) {
        out << '*' << item.samples;
      }
    }
    return out.str();
  }
  std::string operator()(const AwaitFetch& e) const { return text("await r", e.request); }
  std::string operator()(const StartFetch& e) const {
    return text("fetch r", e.request, " s", e.sequence, " rows ", e.rows);
  }
  std::string operator()(const CancelFetch& e) const { return text("cancel-fetch r", e.request); }
  std::string operator()(const SampleTail& e) const {
    return text("sample-tail r", e.request, '*', e.choices);
  }
  std::string operator()(const StartOffer& e) const {
    return text("offer r", e.request, " s", e.sequence);
  }
  std::string operator()(const OfferRows& e) const {
    return text("rows r", e.request, ' ', e.ready);
  }
  std::string operator()(const CommitOffer& e) const {
    return text("commit r", e.request, " s", e.sequence, " rows ", e.rows);
  }
  std::string operator()(const WithdrawOffer& e) const { return text("withdraw r", e.request); }
  std::string operator()(const LoadRows& e) const {
    return text("load r", e.request, " s", e.sequence, " from ", e.rows);
  }
  std::string operator()(const CancelLoad& e) const { return text("cancel-load s", e.sequence); }
  std::string operator()(const ForkSequence& e) const { return text("fork s", e.from, " s", e.to); }
  std::string operator()(const ClearSequence& e) const { return text("clear s", e.sequence); }
  std::string operator()(const TrimSequence& e) const {
    return text("trim s", e.sequence, ' ', e.rows);
  }
  std::string operator()(const ReportReuse& e) const {
    return text("reuse r", e.request, ' ', e.rows, '/', e.prompt_tokens);
  }
  std::string operator()(const ReportKept& e) const {
    return text("kept s", e.sequence, ' ', e.kept.rows);
  }
  std::string operator()(const Deliver& e) const {
    return text("deliver r", e.request, '.', e.choice, e.finish == FinishReason::kNone ? "" : " ",
                e.finish == FinishReason::kNone ? "" : to_string(e.finish));
  }
  std::string operator()(const EndRequest& e) const { return text("end r", e.request); }
  std::string operator()(const FailRequest& e) const {
    return text("fail r", e.request, ' ', to_string(e.error.code));
  }
  std::string operator()(const ReportDrained&) const { return "drained"; }

  // --- events

  std::string operator()(const RequestArrived& e) const {
    static constexpr const char* kModes[] = {"local", "offer", "fetch"};
    return text("arrived r", e.request, ' ', kModes[static_cast<int>(e.kv)], " prompt ",
                e.prompt_tokens, " n ", e.choices, " max ", e.max_tokens);
  }
  std::string operator()(const RequestCancelled& e) const { return text("cancelled r", e.request); }
  std::string operator()(const EngineFree&) const { return "engine-free"; }
  std::string operator()(const StepFinished& e) const { return text("step-finished", outcome(e)); }
  std::string operator()(const StepFailed& e) const {
    return text("step-failed ", to_string(e.error.code));
  }
  std::string operator()(const TailSampled& e) const { return text("tail-sampled", outcome(e)); }
  std::string operator()(const RowsFetched& e) const { return text("rows-fetched r", e.request); }
  std::string operator()(const FetchFailed& e) const {
    return text("fetch-failed r", e.request, ' ', to_string(e.error.code),
                e.region_safe ? "" : " unsafe");
  }
  std::string operator()(const FetchReleased& e) const {
    return text("fetch-released r", e.request);
  }
  std::string operator()(const OfferAwaited& e) const {
    return text(e.awaited ? "awaited r" : "not-awaited r", e.request);
  }
  std::string operator()(const OfferEnded& e) const { return text("offer-ended r", e.request); }
  std::string operator()(const LoadEnded& e) const {
    return text("load-ended s", e.sequence, " rows ", e.rows, e.region_safe ? "" : " unsafe");
  }
  std::string operator()(const LoadReleased& e) const {
    return text("load-released s", e.sequence);
  }
  std::string operator()(const TimePassed&) const { return "time-passed"; }
  std::string operator()(const DrainAsked&) const { return "drain-asked"; }

 private:
  template <class... Parts>
  static std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  }
  template <class Outcome>
  static std::string outcome(const Outcome& e) {
    std::ostringstream out;
    for (const SampledToken& token : e.sampled) {
      out << " r" << token.request << '.' << token.choice << (token.stopped ? " stopped" : "");
    }
    for (const SampleFailure& failure : e.failed) {
      out << " r" << failure.request << " failed";
    }
    return out.str();
  }
};

inline std::string word(const Effect& effect) { return std::visit(Wording{}, effect); }
inline std::string word(const Event& event) { return std::visit(Wording{}, event); }

// Leaves out the kept rows: they follow from the other effects and have their own tests.
inline Words words(const std::vector<Effect>& effects) {
  Words result;
  for (const Effect& effect : effects) {
    if (!std::holds_alternative<ReportKept>(effect)) {
      result.push_back(word(effect));
    }
  }
  return result;
}

}  // namespace pdjob::worker
