// RetryBudget keeps retries from becoming the load that stops workers from recovering. Each request
// earns a share of a retry, and up to a hundred retries can be saved. So a short disturbance is
// retried in full, and a long one adds at most that share to the load (as Finagle's RetryBudget;
// Site Reliability Engineering, chapter 22). Retries after an answer and second attempts beside a
// slow one count. A retry after a lost worker is free, because that worker has stopped computing.
// Pure.
#pragma once

#include <algorithm>

namespace pdjob::router {

class RetryBudget {
 public:
  static constexpr double kSaved = 100;

  explicit RetryBudget(double per_request) : per_request_(per_request) {}

  void set_rate(double per_request) { per_request_ = per_request; }
  void earn() { saved_ = std::min(kSaved, saved_ + per_request_); }
  bool left() const { return saved_ >= 1; }
  // Requires: left().
  void spend() { saved_ -= 1; }

 private:
  double per_request_;
  double saved_ = kSaved;
};

}  // namespace pdjob::router
