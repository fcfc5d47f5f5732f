// HeldBytes: how much memory the requests of all connections hold, in total and per account. Bytes
// count when they arrive, not when a client announces them. Loop-bound.
//
// One holder may have at most as much as is left free (dynamic thresholds: Choudhury and Hahne,
// 1998). So a few large bodies cannot keep small ones out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pdjob::net {

class HeldBytes {
 public:
  // A tenant, or 0 for bytes without a tenant, which count only in the total.
  using Account = uint32_t;
  enum class Verdict { kFits, kTotalIsFull, kAccountIsFull };

  HeldBytes(size_t total_max, size_t account_max)
      : total_max_(total_max), account_max_(account_max) {}

  // Says whether a holder of `own` bytes may take `more`. Changes nothing.
  Verdict ask(Account account, size_t own, size_t more) const {
    if (account > 0 && of(account) + more > account_max_) {
      return Verdict::kAccountIsFull;
    }
    const size_t free = total_ < total_max_ ? total_max_ - total_ : 0;
    return more > free || own + more > free - more ? Verdict::kTotalIsFull : Verdict::kFits;
  }
  // Counts bytes even without ask(): they are already in memory.
  void take(Account account, size_t bytes) {
    total_ += bytes;
    if (account > 0) {
      if (account >= of_account_.size()) {
        of_account_.resize(account + 1);
      }
      of_account_[account] += bytes;
    }
  }
  void give_back(Account account, size_t bytes) {
    total_ -= bytes;
    if (account > 0 && account < of_account_.size()) {
      of_account_[account] -= bytes;
    }
  }

  bool full() const { return total_ >= total_max_; }
  size_t total() const { return total_; }
  size_t of(Account account) const {
    return account < of_account_.size() ? of_account_[account] : 0;
  }

 private:
  const size_t total_max_;
  const size_t account_max_;
  size_t total_ = 0;
  std::vector<size_t> of_account_;
};

}  // namespace pdjob::net
