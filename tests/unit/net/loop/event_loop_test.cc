#include "net/loop/event_loop.h"

#include <array>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/os/real_clock.h"
#include "common/os/tied_posts.h"
#include "net/loop/socket.h"

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;

class LambdaFd final : public FdHandler {
 public:
  std::function<void(uint32_t)> ready;
  void on_ready(uint32_t epoll_events) override { ready(epoll_events); }
};

struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    PDJOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()) == 0);
    a = Fd(fds[0]);
    b = Fd(fds[1]);
  }
  void poke() const { PDJOB_CHECK(write(b.get(), "x", 1) == 1); }
  Fd a;
  Fd b;
};

TEST(EventLoop, RunsTimersInOrderOfTimeAndThenOfCreation) {
  EventLoop loop;
  std::vector<int> order;
  const Instant now = loop.now();
  loop.call_at(now + milliseconds(20), [&] {
    order.push_back(3);
    loop.stop();
  });
  loop.call_at(now, [&] { order.push_back(1); });
  loop.call_at(now + milliseconds(5), [&] {
    EXPECT_GE(loop.now(), now + milliseconds(5));
    order.push_back(2);
  });
  loop.call_at(now, [&] { order.push_back(10); });
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{1, 10, 2, 3}));
  EXPECT_GE(real_now(), now + milliseconds(20));
}

TEST(EventLoop, TellsOtherThreadsHowLongATurnHasLasted) {
  EventLoop loop;
  const auto wait_for = [&](bool lasts) {
    const Instant end = real_now() + std::chrono::seconds(20);
    while ((loop.turn_lasted() > Duration::zero()) != lasts && real_now() < end) {
      std::this_thread::yield();
    }
    return (loop.turn_lasted() > Duration::zero()) == lasts;
  };
  EXPECT_TRUE(wait_for(false)) << "it does not run";
  std::thread thread([&] { loop.run(); });
  std::promise<void> gate;
  loop.post([&] { gate.get_future().wait(); });
  EXPECT_TRUE(wait_for(true)) << "its work does not return";
  gate.set_value();
  EXPECT_TRUE(wait_for(false)) << "it waits for work";
  loop.stop();
  thread.join();
  EXPECT_EQ(loop.turn_lasted(), Duration::zero()) << "it has ended";
}

TEST(EventLoop, DoesNotRunCancelledTimers) {
  EventLoop loop;
  bool ran = false;
  TimerId second{};
  loop.call_at(loop.now(), [&] { loop.cancel(second); });
  second = loop.call_at(loop.now(), [&] { ran = true; });
  loop.cancel(loop.call_at(loop.now(), [&] { ran = true; }));
  loop.cancel(TimerId{12345});
  loop.call_at(loop.now() + milliseconds(5), [&] { loop.stop(); });
  loop.run();
  EXPECT_FALSE(ran);
}

TEST(EventLoop, ForgetsManyCancelledTimers) {
  EventLoop loop;
  for (int i = 0; i < 100000; ++i) {
    loop.cancel(loop.call_at(loop.now() + std::chrono::hours(1), [] {}));
  }
  bool ran = false;
  loop.call_at(loop.now(), [&] {
    ran = true;
    loop.stop();
  });
  loop.run();
  EXPECT_TRUE(ran);
}

TEST(EventLoop, ATimerThatRenewsItselfDoesNotHoldTheLoop) {
  EventLoop loop;
  const Pair pair;
  int renewals = 0;
  std::function<void()> renew = [&] {
    ++renewals;
    loop.call_at(loop.now(), [&] { renew(); });
  };
  LambdaFd handler;
  handler.ready = [&](uint32_t) { loop.stop(); };
  ASSERT_TRUE(loop.watch(pair.a.get(), EPOLLIN, handler).has_value());
  loop.call_at(loop.now(), [&] { renew(); });
  loop.call_at(loop.now() + milliseconds(5), [&] { pair.poke(); });
  loop.run();
  EXPECT_GT(renewals, 1);
}

TEST(EventLoop, PacesItsTurns) {
  constexpr int kSlowTurns = 10;
  constexpr milliseconds kInterval(2);
  EventLoop loop;
  loop.pace_turns(kInterval);
  int turns = 0;
  std::function<void()> renew = [&] {
    if (++turns == EventLoop::kTurnsAhead + kSlowTurns) {
      loop.stop();
    } else {
      loop.call_at(loop.now(), [&] { renew(); });
    }
  };
  const Instant begun = real_now();
  loop.call_at(begun, [&] { renew(); });
  loop.run();
  EXPECT_GE(real_now() - begun, (kSlowTurns - 1) * kInterval);
}

class LambdaTurn final : public TurnHandler {
 public:
  std::function<void()> ended;
  void on_turn_end() override { ended(); }
};

TEST(EventLoop, TellsOfATurnsEndWhenAllElseOfItIsDone) {
  EventLoop loop;
  std::vector<int> order;
  LambdaTurn turn;
  turn.ended = [&] { order.push_back(3); };
  loop.call_at(loop.now(), [&] {
    loop.at_turn_end(turn);
    order.push_back(1);
  });
  loop.call_at(loop.now(), [&] { order.push_back(2); });
  loop.call_at(loop.now() + milliseconds(2), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(EventLoop, TellsOfTheTurnThatIsItsLast) {
  EventLoop loop;
  int told = 0;
  LambdaTurn second;
  second.ended = [&] { ++told; };
  LambdaTurn first;
  first.ended = [&] {
    ++told;
    loop.at_turn_end(second);
    loop.stop();
  };
  loop.call_at(loop.now(), [&] { loop.at_turn_end(first); });
  loop.run();
  EXPECT_EQ(told, 2);
}

TEST(EventLoop, WhoAsksAgainAtATurnsEndIsToldInTheNextWhichDoesNotWait) {
  EventLoop loop;
  int told = 0;
  LambdaTurn turn;
  turn.ended = [&] {
    if (++told == 3) {
      loop.stop();
    } else {
      loop.at_turn_end(turn);
    }
  };
  loop.at_turn_end(turn);
  loop.run();  // It must wake by itself.
  EXPECT_EQ(told, 3);
}

TEST(EventLoop, TellsNobodyWhoIsForgotten) {
  EventLoop loop;
  bool told = false;
  LambdaTurn forgotten;
  forgotten.ended = [&] { told = true; };
  LambdaTurn first;
  first.ended = [&] {
    loop.forget_turn_end(forgotten);
    loop.stop();
  };
  loop.at_turn_end(first);
  loop.at_turn_end(forgotten);
  loop.run();
  EXPECT_FALSE(told);
}

TEST(EventLoop, RunsWhatOtherThreadsPost) {
  EventLoop loop;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        loop.post([&] {
          if (++ran == 4000) {
            loop.stop();
          }
        });
      }
    });
  }
  loop.run();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ran, 4000);
}

TEST(EventLoop, IsStoppedByAnotherThread) {
  EventLoop loop;
  bool late = false;
  loop.call_at(loop.now() + std::chrono::seconds(20), [&] {
    late = true;
    loop.stop();
  });
  std::thread thread([&] { loop.stop(); });
  loop.run();
  thread.join();
  EXPECT_FALSE(late);
}

TEST(EventLoop, TellsOfEachEdge) {
  EventLoop loop;
  const Pair pair;
  int edges = 0;
  LambdaFd handler;
  handler.ready = [&](uint32_t events) {
    EXPECT_NE(events & EPOLLIN, 0U);
    if (++edges == 2) {
      loop.stop();
    }
  };
  ASSERT_TRUE(loop.watch(pair.a.get(), EPOLLIN, handler).has_value());
  pair.poke();
  // The handler read nothing, but new bytes are a new edge.
  loop.call_at(loop.now() + milliseconds(5), [&] { pair.poke(); });
  loop.run();
  EXPECT_EQ(edges, 2);
}

TEST(EventLoop, CallsNoHandlerThatWasUnwatchedInTheSameTurn) {
  EventLoop loop;
  const Pair first;
  const Pair second;
  int calls = 0;
  LambdaFd handlers[2];
  // The first handler called unwatches the other one.
  handlers[0].ready = [&](uint32_t) {
    ++calls;
    loop.unwatch(second.a.get());
  };
  handlers[1].ready = [&](uint32_t) {
    ++calls;
    loop.unwatch(first.a.get());
  };
  ASSERT_TRUE(loop.watch(first.a.get(), EPOLLIN, handlers[0]).has_value());
  ASSERT_TRUE(loop.watch(second.a.get(), EPOLLIN, handlers[1]).has_value());
  first.poke();
  second.poke();
  loop.call_at(loop.now() + milliseconds(5), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, GivesNoStaleEventToTheNextOwnerOfADescriptor) {
  EventLoop loop;
  Pair first;
  Pair second;
  int stale = 0;
  LambdaFd newcomer;
  newcomer.ready = [&](uint32_t events) { stale += (events & EPOLLIN) != 0 ? 1 : 0; };
  Fd reopened;
  // The first handler called closes the other descriptor. Its number goes at once to a socket that
  // never becomes readable.
  const auto replace = [&](Pair& other) {
    const int number = other.a.get();
    loop.unwatch(number);
    other.a.reset();
    reopened = Fd(socket(AF_UNIX, SOCK_DGRAM, 0));
    ASSERT_EQ(reopened.get(), number);
    ASSERT_TRUE(loop.watch(number, EPOLLIN, newcomer).has_value());
  };
  LambdaFd handlers[2];
  handlers[0].ready = [&](uint32_t) { replace(second); };
  handlers[1].ready = [&](uint32_t) { replace(first); };
  ASSERT_TRUE(loop.watch(first.a.get(), EPOLLIN, handlers[0]).has_value());
  ASSERT_TRUE(loop.watch(second.a.get(), EPOLLIN, handlers[1]).has_value());
  first.poke();
  second.poke();
  loop.call_at(loop.now() + milliseconds(5), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(stale, 0);
}

TEST(EventLoop, MayBeRunAgain) {
  EventLoop loop;
  for (int i = 0; i < 3; ++i) {
    bool ran = false;
    loop.post([&] {
      ran = true;
      loop.stop();
    });
    loop.run();
    EXPECT_TRUE(ran);
  }
}

TEST(EventLoop, RefusesWhatCannotBeWatched) {
  EventLoop loop;
  LambdaFd handler;
  const Pair closed;
  EXPECT_FALSE(loop.watch(9999, EPOLLIN, handler).has_value());
  loop.unwatch(9999);
  loop.unwatch(-1);
}

TEST(TiedPosts, WorkOfAnOwnerThatHasEndedIsDropped) {
  EventLoop loop;
  std::vector<std::string> done;
  std::optional<TiedPosts<EventLoop>> role(std::in_place, loop);
  std::thread([&] { role->post([&] { done.emplace_back("stale"); }); }).join();
  role.emplace(loop);
  std::thread([&] { role->post([&] { done.emplace_back("fresh"); }); }).join();
  loop.post([&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(done, (std::vector<std::string>{"fresh"}));
}

}  // namespace
}  // namespace pdjob::net
