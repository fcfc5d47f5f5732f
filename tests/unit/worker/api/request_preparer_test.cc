#include "worker/api/request_preparer.h"

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "net/loop/event_loop.h"

namespace pdjob::worker {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

struct RequestPreparerTest : testing::Test {
  // Waits until the thread's step has lasted for some time, or there is none.
  bool stands_still(bool wanted) const {
    const Instant end = real_now() + kPatience;
    while ((preparer.standstill() > Duration::zero()) != wanted && real_now() < end) {
      std::this_thread::yield();
    }
    return preparer.standstill() > Duration::zero();
  }

  // Work of `steps` steps. The first one waits for the gate, if there is one.
  class Work final : public Preparation {
   public:
    Work(int steps, Channel<int>* gate, std::function<void()> done)
        : steps_(steps), gate_(gate), done_(std::move(done)) {}
    bool step() override {
      if (gate_ != nullptr) {
        std::vector<int> opened;
        std::exchange(gate_, nullptr)->wait_and_drain(opened, real_now() + kPatience);
      }
      return --steps_ == 0;
    }
    void done() override { done_(); }

   private:
    int steps_;
    Channel<int>* gate_;
    const std::function<void()> done_;
  };

  Status submit(uint64_t key, int steps, Channel<int>* first = nullptr, size_t bytes = 1) {
    return preparer.submit(key, bytes, std::make_unique<Work>(steps, first, [this, key] {
                             order.push_back(key);
                             if (order.size() == awaited) {
                               loop.stop();
                             }
                           }));
  }
  void run_until_done(size_t count) {
    awaited = count;
    loop.call_at(real_now() + kPatience, [this] { loop.stop(); });
    loop.run();
    EXPECT_EQ(order.size(), count);
  }

  net::EventLoop loop;
  std::vector<uint64_t> order;
  size_t awaited = 0;
  Channel<int> gate{1};
  RequestPreparer preparer{loop};
};

TEST_F(RequestPreparerTest, AStepThatDoesNotReturnStandsStill) {
  EXPECT_EQ(preparer.standstill(), Duration::zero());
  ASSERT_TRUE(submit(1, 2, &gate));
  EXPECT_TRUE(stands_still(true));
  gate.push_always(1);
  run_until_done(1);
  EXPECT_FALSE(stands_still(false));
}

TEST_F(RequestPreparerTest, AShortOneOvertakesALongOneThatCameFirst) {
  ASSERT_TRUE(submit(1, 256, &gate));
  ASSERT_TRUE(submit(2, 3));
  ASSERT_TRUE(submit(3, 1));
  gate.push_always(1);
  run_until_done(3);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_TRUE(preparer.idle());
}

TEST_F(RequestPreparerTest, WhatIsCancelledIsNeverDone) {
  ASSERT_TRUE(submit(1, 1, &gate));
  ASSERT_TRUE(submit(2, 1));
  ASSERT_TRUE(submit(3, 1));
  preparer.cancel(1);  // It may already be in preparation.
  preparer.cancel(2);
  preparer.cancel(7);
  ASSERT_TRUE(submit(2, 1)) << "the key is free again";
  gate.push_always(1);
  run_until_done(2);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 2}));
  EXPECT_TRUE(preparer.idle());
}

TEST_F(RequestPreparerTest, RefusesWhatItCannotHold) {
  ASSERT_TRUE(submit(1, 1, &gate, limits::kPreparedBytesMax - 10));
  EXPECT_EQ(submit(2, 1, nullptr, 11).error().code, ErrorCode::kOverloaded);
  ASSERT_TRUE(submit(3, 1, nullptr, 10));
  preparer.cancel(3);
  EXPECT_FALSE(submit(4, 1, nullptr, 10)) << "its memory is still held";
  gate.push_always(1);
  run_until_done(1);
  while (!preparer.idle()) {
    loop.call_at(real_now() + std::chrono::milliseconds(1), [this] { loop.stop(); });
    loop.run();
  }
  ASSERT_TRUE(submit(5, 1, nullptr, limits::kPreparedBytesMax));
  run_until_done(2);
}

TEST_F(RequestPreparerTest, ManyRequestsAreRefusedHoweverShort) {
  ASSERT_TRUE(submit(0, 1, &gate));
  for (uint64_t key = 1; key < limits::kRequestsQueuedMax; ++key) {
    ASSERT_TRUE(submit(key, 1));
  }
  EXPECT_EQ(submit(limits::kRequestsQueuedMax, 1).error().code, ErrorCode::kOverloaded);
  gate.push_always(1);
  run_until_done(limits::kRequestsQueuedMax);
}

// The thread ends its run when no work is left, and the loop learns of it later.
TEST_F(RequestPreparerTest, TakesWorkThatComesWhileARunEnds) {
  for (uint64_t key = 0; key < 500; ++key) {
    ASSERT_TRUE(submit(key, 1));
    run_until_done(key + 1);
  }
}

TEST(RequestPreparer, ThatEndsDropsWhatIsLeft) {
  net::EventLoop loop;
  bool done = false;
  {
    RequestPreparer preparer(loop);
    class Endless final : public Preparation {
     public:
      explicit Endless(bool& flag) : done_(flag) {}
      bool step() override { return false; }
      void done() override { done_ = true; }

     private:
      bool& done_;
    };
    ASSERT_TRUE(preparer.submit(1, 1, std::make_unique<Endless>(done)));
  }
  EXPECT_FALSE(done);
}

}  // namespace
}  // namespace pdjob::worker
