#include "launcher/capacity/probe_plan.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

using Kind = WantedProbe::Kind;

// No probe may take more of the budget than one in so many.
constexpr int kBudgetParts = 6;

// What is computed, roughly: only the order and the growth of costs matter.
double cost_of(const WantedProbe& probe) {
  constexpr double kTokensOfStream = 64;
  const double prompts = 1.0 * probe.requests * probe.tokens;
  switch (probe.kind) {
    case Kind::kPrompt:
      return prompts;
    case Kind::kDecode:
      return prompts + probe.requests * kTokensOfStream;
    case Kind::kMixed:
      return probe.tokens + probe.requests * 2 * kTokensOfStream;
    case Kind::kTransfer:
      return prompts;
  }
  return prompts;
}

std::vector<WantedProbe> all_wanted(bool transfers) {
  std::vector<WantedProbe> wanted;
  for (const uint32_t tokens : {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
    wanted.push_back({Kind::kPrompt, 1, tokens});
  }
  for (const uint32_t requests : {2, 4}) {
    wanted.push_back({Kind::kPrompt, requests, 256});
    wanted.push_back({Kind::kPrompt, requests, 1024});
  }
  for (const uint32_t requests : {1, 2, 4, 8, 16, 32, 64}) {
    wanted.push_back({Kind::kDecode, requests, 64});
  }
  for (const uint32_t tokens : {512, 2048, 8192}) {
    for (const uint32_t requests : {1, 4, 8}) {
      wanted.push_back({Kind::kDecode, requests, tokens});
    }
  }
  wanted.push_back({Kind::kMixed, 2, 256});
  wanted.push_back({Kind::kMixed, 4, 512});
  if (transfers) {
    for (const uint32_t tokens : {64, 256, 512, 1024, 2048, 4096, 8192}) {
      wanted.push_back({Kind::kTransfer, 1, tokens});
    }
  }
  std::ranges::stable_sort(wanted, {}, cost_of);
  return wanted;
}

}  // namespace

std::string WantedProbe::name() const {
  const std::string size = std::to_string(tokens);
  const std::string count = std::to_string(requests);
  switch (kind) {
    case Kind::kPrompt:
      return "prompt " + size + (requests > 1 ? " x " + count : "");
    case Kind::kDecode:
      return "decode " + count + " at " + size;
    case Kind::kMixed:
      return "decode " + count + " with prompt " + size;
    case Kind::kTransfer:
      return "kv " + size;
  }
  return {};
}

ProbePlan::ProbePlan(const Limits& limits)
    : limits_(limits), wanted_(all_wanted(limits.transfers)) {}

bool ProbePlan::possible(const WantedProbe& probe) const {
  return probe.tokens < tokens_refused_ && probe.tokens <= limits_.prompt_tokens_max &&
         probe.requests < requests_refused_ && probe.requests <= limits_.requests_max &&
         (round_ == 0 || walls_.contains(probe));
}

// As it took before; otherwise by the one of its kind with the next lower cost. Attention makes
// long prompts dearer than their tokens.
Duration ProbePlan::expected(const WantedProbe& probe) const {
  if (const auto found = walls_.find(probe); found != walls_.end()) {
    return found->second;
  }
  constexpr double kGrowth = 1.3;
  const WantedProbe* nearest = nullptr;
  for (const auto& [known, wall] : walls_) {
    if (known.kind == probe.kind && (nearest == nullptr || cost_of(known) > cost_of(*nearest))) {
      nearest = &known;
    }
  }
  if (nearest == nullptr) {
    return {};
  }
  const double factor = std::max(1.0, kGrowth * cost_of(probe) / cost_of(*nearest));
  return std::chrono::duration_cast<Duration>(factor * walls_.at(*nearest));
}

std::optional<WantedProbe> ProbePlan::next(Duration left) {
  const Duration longest = std::min(left, limits_.budget / kBudgetParts);
  while (round_ < limits_.rounds) {
    for (; at_ < wanted_.size(); ++at_) {
      if (possible(wanted_[at_]) && left > Duration::zero() && expected(wanted_[at_]) <= longest) {
        return wanted_[at_];
      }
    }
    at_ = 0;
    ++round_;
  }
  return std::nullopt;
}

void ProbePlan::took(Duration wall) {
  PDJOB_CHECK(at_ < wanted_.size());
  walls_[wanted_[at_++]] = wall;
}

void ProbePlan::was_too_long() {
  PDJOB_CHECK(at_ < wanted_.size());
  tokens_refused_ = std::min(tokens_refused_, wanted_[at_++].tokens);
}

void ProbePlan::was_too_many() {
  PDJOB_CHECK(at_ < wanted_.size());
  requests_refused_ = std::min(requests_refused_, wanted_[at_++].requests);
}

void ProbePlan::was_useless() {
  PDJOB_CHECK(at_ < wanted_.size());
  ++at_;
}

double ProbePlan::share_done() const {
  const double in_round = static_cast<double>(at_) / static_cast<double>(wanted_.size());
  return std::min(1.0, (round_ + in_round) / limits_.rounds);
}

}  // namespace pdjob::launcher
