#include "engine/threads/lending_rest.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::engine {

bool LendingRest::judge(const BorrowedStep& step, Instant now) {
  PDJOB_CHECK(step.threads > step.own && step.own > 0, step.threads, step.own);
  credit_ = std::min(credit_ + step.saved(), kCredit);
  if (step.saved() >= Duration::zero()) {
    length_ = length_ > kFirst ? length_ / 2 : Duration::zero();
  }
  if (credit_ >= Duration::zero()) {
    return false;
  }
  credit_ = Duration::zero();
  length_ = std::clamp(2 * length_, kFirst, kLongest);
  until_ = now + length_;
  ++count_;
  return true;
}

}  // namespace pdjob::engine
