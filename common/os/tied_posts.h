// TiedPosts: work that other threads post to a loop for an owner that may end first. Work that has
// not run by then is dropped. Loop-bound, except post(), which is Thread-safe until the end.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace pdjob {

template <class Loop>
class TiedPosts {
 public:
  explicit TiedPosts(Loop& loop) : loop_(loop) {}

  void post(std::function<void()> work) {
    loop_.post([alive = std::weak_ptr(alive_), work = std::move(work)] {
      if (!alive.expired()) {
        work();
      }
    });
  }

 private:
  Loop& loop_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace pdjob
