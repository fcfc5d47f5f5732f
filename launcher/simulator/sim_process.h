// SimProcess: one life of one simulated process, with production code on its virtual loops. Each
// turn takes time, so that anything can happen between two of them. A dead process runs nothing any
// more. A stopped one (SIGSTOP), or one that gets no core, runs what came meanwhile, in order, when
// it continues.
//
// SimThread is one of its threads; the process itself is its first one.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "launcher/simulator/sim_loop.h"
#include "net/loop/loop.h"

namespace pdjob::simulation {

class SimThread;

// Where a thread's streams lead (sim_sockets.h).
class SimStreams {
 public:
  virtual std::unique_ptr<net::Stream> connect_stream(const net::SocketAddress& address,
                                                      SimThread& thread) = 0;
  virtual Result<std::unique_ptr<net::Listener>> listen_stream(const net::ListenOptions& options,
                                                               SimThread& thread) = 0;

 protected:
  ~SimStreams() = default;
};

class SimThread : public net::Loop {
 public:
  using Task = std::function<void()>;

  // Shared by all threads of a process.
  struct Life {
    std::string name;
    std::string host;
    bool alive = true;
    bool stopped = false;
    Instant starved_since = kNever;  // It is stopped, and gets no core; kNever: it does not.
    Duration waited{};               // For a core, before that.
    uint64_t turns = 0;              // Of all threads.
    std::vector<Task> go_on;         // Of each thread.
  };
  static constexpr Duration kTurnMax = std::chrono::microseconds(20);
  struct Setting {
    SimLoop& loop;
    Duration turn_max = kTurnMax;  // A turn takes up to this long.
    uint64_t seed = 0;
    SimStreams* streams = nullptr;  // Null: it has none.
    std::string host;               // An address.
  };

  SimThread(std::shared_ptr<Life> life, const Setting& setting)
      : setting_(setting),
        random_(setting.seed),
        state_(std::make_shared<State>(std::move(life), setting.loop)) {
    state_->life->go_on.emplace_back([state = std::weak_ptr(state_)] {
      if (const auto here = state.lock()) {
        here->run_held();
      }
    });
  }
  SimThread(const SimThread&) = delete;
  SimThread& operator=(const SimThread&) = delete;
  virtual ~SimThread() { state_->tasks.clear(); }

  Instant now() const override { return setting_.loop.now(); }
  Instant exact_now() const override { return setting_.loop.now(); }
  net::TimerId call_at(Instant when, Task work) override {
    return add(std::max(when, now() + turn()), std::move(work));
  }
  void cancel(net::TimerId timer) override { state_->tasks.erase(timer.value); }
  void post(Task work) override { post_at(now(), std::move(work)); }
  // Runs behind all work that was posted before, and not before `when`.
  void post_at(Instant when, Task work) {
    last_post_ = std::max({last_post_, when, now() + turn()});
    add(last_post_, std::move(work));
  }
  void at_turn_end(net::TurnHandler& handler) override {
    state_->turn_ends.push_back(&handler);
    if (!state_->in_turn) {
      add(now() + turn(), [] {});
    }
  }
  void forget_turn_end(net::TurnHandler& handler) override {
    std::erase(state_->turn_ends, &handler);
    std::ranges::replace(state_->ending, &handler, nullptr);
  }
  // The clocks of hosts differ.
  int64_t unix_seconds() const override {
    return 1'700'000'000 + static_cast<int64_t>(std::hash<std::string>()(host()) % 100'000) +
           std::chrono::duration_cast<std::chrono::seconds>(now().time_since_epoch()).count();
  }
  uint64_t entropy() override { return random_.next(); }

  Result<std::unique_ptr<net::Stream>> connect(const net::SocketAddress& address) override {
    return setting_.streams->connect_stream(address, *this);
  }
  Result<std::unique_ptr<net::Listener>> listen(const net::ListenOptions& options) override {
    return setting_.streams->listen_stream(options, *this);
  }
  std::unique_ptr<net::Resolver> make_resolver() override { return std::make_unique<NoNames>(); }
  std::unique_ptr<net::Helper> make_helper(const std::string& /*name*/) override;

  const std::string& host() const { return life().host; }

 protected:
  Life& life() const { return *state_->life; }
  const std::shared_ptr<Life>& shared_life() const { return state_->life; }
  // Another thread of this process.
  std::unique_ptr<SimThread> make_sibling() {
    Setting setting = setting_;
    setting.seed = entropy();
    return std::make_unique<SimThread>(shared_life(), setting);
  }

 private:
  struct NoNames final : net::Resolver {
    void look_up(std::string host, uint16_t /*port*/,
                 std::function<void(Addresses)> /*then*/) override {
      PDJOB_CHECK(false, "simulated hosts have addresses, no names:", host);
    }
  };

  // Outlives the thread, because the world's loop still has its tasks.
  struct State {
    State(std::shared_ptr<Life> shared, SimLoop& world) : life(std::move(shared)), loop(world) {}

    std::shared_ptr<Life> life;
    SimLoop& loop;
    uint64_t tasks_made = 0;
    std::map<uint64_t, Task> tasks;
    std::deque<uint64_t> held;
    std::vector<net::TurnHandler*> turn_ends;
    std::vector<net::TurnHandler*> ending;  // Those being called; null: forgotten since.
    bool in_turn = false;

    void due(uint64_t task) {
      if (life->stopped) {
        held.push_back(task);
      } else {
        run(task);
      }
    }
    void run(uint64_t task) {
      auto found = tasks.extract(task);
      if (!found || !life->alive) {
        return;
      }
      in_turn = true;
      ++life->turns;
      found.mapped()();
      // A request made here counts for the next turn, which comes at once.
      while (!turn_ends.empty() && life->alive) {
        ending.swap(turn_ends);
        for (size_t i = 0; i < ending.size(); ++i) {
          if (ending[i] != nullptr) {
            ending[i]->on_turn_end();
          }
        }
        ending.clear();
      }
      in_turn = false;
    }
    void run_held() {
      while (!held.empty() && !life->stopped) {
        const uint64_t task = held.front();
        held.pop_front();
        run(task);
      }
    }
  };

  Duration turn() {
    return Duration(1 + random_.below(static_cast<uint64_t>(setting_.turn_max.count())));
  }
  net::TimerId add(Instant when, Task work) {
    const uint64_t task = ++state_->tasks_made;
    if (state_->life->alive) {
      state_->tasks.emplace(task, std::move(work));
      if (when != kNever) {  // One that never runs still owns what its work owns.
        setting_.loop.at(when, [state = state_, task] { state->due(task); });
      }
    }
    return net::TimerId{task};
  }

  const Setting setting_;
  Random random_;
  Instant last_post_{};
  const std::shared_ptr<State> state_;
};

// Work that blocks takes up to a few milliseconds.
class SimHelper final : public net::Helper {
 public:
  explicit SimHelper(std::unique_ptr<SimThread> thread) : thread_(std::move(thread)) {}
  void run(std::function<void()> work) override {
    thread_->post_at(thread_->now() + std::chrono::microseconds(thread_->entropy() % 4096),
                     std::move(work));
  }

 private:
  const std::unique_ptr<SimThread> thread_;
};

inline std::unique_ptr<net::Helper> SimThread::make_helper(const std::string& /*name*/) {
  return std::make_unique<SimHelper>(make_sibling());
}

class SimProcess final : public SimThread {
 public:
  SimProcess(std::string name, const Setting& setting)
      : SimThread(std::make_shared<Life>(Life{.name = std::move(name), .host = setting.host}),
                  setting) {}
  ~SimProcess() override { die(); }

  std::unique_ptr<SimThread> make_thread() { return make_sibling(); }

  const std::string& name() const { return life().name; }
  bool alive() const { return life().alive; }
  bool stopped() const { return life().stopped; }
  uint64_t turns() const { return life().turns; }
  void die() { life().alive = false; }
  void stop() { life().stopped = true; }
  void starve() {
    stop();
    life().starved_since = std::min(life().starved_since, now());
  }
  Instant starved_since() const { return life().starved_since; }
  Duration waited() const { return life().waited; }  // A wait counts when it is over.
  void go_on() {
    life().waited += std::max(now() - starved_since(), Duration::zero());
    life().starved_since = kNever;
    life().stopped = false;
    const std::shared_ptr<Life> here = shared_life();  // A task may end the process.
    for (const Task& each : here->go_on) {
      each();
    }
  }
};

}  // namespace pdjob::simulation
