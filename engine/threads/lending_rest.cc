#include "engine/threads/lending_rest.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::engine {

bool LendingRest::judge(const BorrowedStep& step, Instant now) {
  PDJOB_CHECK(step.threads > step.own && step.own > 0, step.threads, step.own);
  if (step.pays()) {
    length_ = length_ > kFirst ? length_ / 2 : Duration::zero();
    return false;
  }
  length_ = std::clamp(2 * length_, kFirst, kLongest);
  until_ = now + length_;
  ++count_;
  return true;
}

}  // namespace pdjob::engine
