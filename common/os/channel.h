// A bounded queue between two threads: the only way a loop and its helper thread meet. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "common/os/real_clock.h"
#include "common/time.h"

namespace pdjob {

template <class T>
class Channel {
 public:
  explicit Channel(size_t capacity) : capacity_(capacity) {}

  // False when the channel is full or closed; the caller then answers "overloaded".
  [[nodiscard]] bool try_push(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) {
        return false;
      }
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // For messages that must not be refused (cancel, shutdown). It ignores the capacity, so its
  // callers must bound themselves.
  void push_always(T item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // Moves all queued items to the end of `out`. Does not wait.
  void drain(std::vector<T>& out) {
    const std::lock_guard lock(mutex_);
    move_all(out);
  }

  // The same, but waits until an item arrives, the channel is closed, or `deadline` passes.
  void wait_and_drain(std::vector<T>& out, Instant deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !items_.empty(); };
    if (deadline == kNever) {
      ready_.wait(lock, ready);
    } else {
      ready_.wait_for(lock, deadline - real_now(), ready);
    }
    move_all(out);
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void move_all(std::vector<T>& out) {
    for (T& item : items_) {
      out.push_back(std::move(item));
    }
    items_.clear();
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace pdjob
