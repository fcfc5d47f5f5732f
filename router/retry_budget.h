// RetryBudget: retries must not become the load that keeps workers from recovering. Each request
// earns a share of a retry, and a hundred can be saved up, so that a short disturbance is healed
// whole and a long one adds no more than that share to the load (as Finagle's RetryBudget; Site
// Reliability Engineering, chapter 22). Only answers are counted: a worker that is gone does no
// work for what it lost. Pure.
#pragma once

#include <algorithm>

namespace pdjob::router {

class RetryBudget {
 public:
  static constexpr double kSaved = 100;

  explicit RetryBudget(double per_request) : per_request_(per_request) {}

  void earn() { saved_ = std::min(kSaved, saved_ + per_request_); }
  bool left() const { return saved_ >= 1; }
  // Requires: left().
  void spend() { saved_ -= 1; }

 private:
  double per_request_;
  double saved_ = kSaved;
};

}  // namespace pdjob::router
