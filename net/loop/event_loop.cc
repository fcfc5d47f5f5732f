#include "net/loop/event_loop.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/check.h"
#include "common/limits.h"
#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "common/os/turn_watch.h"
#include "common/random.h"
#include "net/loop/tcp_stream.h"
#include "net/loop/thread_helper.h"
#include "net/loop/thread_resolver.h"

namespace pdjob::net {
namespace {

constexpr size_t kEventsPerTurn = 256;
// Cancelled timers stay in the heap until they are due or outnumber the live ones.
constexpr size_t kDeadTimersTolerated = 64;

// A timer's id: above the slot stands the count of earlier timers, which orders equal times.
constexpr unsigned kSlotBits = 20;

size_t slot_of(TimerId id) { return id.value & ((1U << kSlotBits) - 1); }

struct Timer {
  TimerId id{};  // None: the slot is free.
  std::function<void()> work;
};

struct DueTimer {
  Instant when;
  TimerId id;
  // std::push_heap puts the largest first; we want the earliest. Equal times run in order of
  // creation.
  bool operator<(const DueTimer& other) const {
    return when != other.when ? when > other.when : id > other.id;
  }
};

// An event carries the generation of its watch. It is stale if the descriptor was since unwatched,
// or closed and reused.
uint64_t event_key(int fd, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

struct EventLoop::State final : FdHandler {
  struct Watch {
    FdHandler* handler = nullptr;
    uint32_t generation = 0;
  };

  int epoll_fd = -1;
  int wake_fd = -1;
  bool running = false;
  Instant now{};
  Duration turn_interval{};
  Instant next_turn{};
  std::vector<Watch> watches;  // By descriptor.
  std::vector<DueTimer> timer_heap;
  std::vector<Timer> timers;  // By slot.
  std::vector<uint32_t> free_slots;
  uint64_t timers_made = 0;
  std::vector<TurnHandler*> turn_ends;
  std::vector<TurnHandler*> ending;  // Handlers being called; null: forgotten since.

  // Shared with other threads.
  std::atomic<bool> stopping = false;
  std::atomic<bool> woken = false;
  TurnWatch turn;
  Channel<std::function<void()>> posted{limits::kChannelMax};

  void on_ready(uint32_t) override {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_fd, &count, sizeof count);
  }
  void wake();
  void dispatch(const epoll_event& event);
  void run_timers();
  TimerId add(std::function<void()> work);
  bool is_alive(TimerId id) const;
  std::function<void()> take(TimerId id);
  void run_posted();
  void end_turn();
  void drop_dead_timers();
  int wait_ms() const;
  void rest();
};

void EventLoop::State::wake() {
  if (!woken.exchange(true)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t bytes = write(wake_fd, &one, sizeof one);
  }
}

void EventLoop::State::dispatch(const epoll_event& event) {
  const auto fd = static_cast<size_t>(event.data.u64 & 0xffffffff);
  const auto generation = static_cast<uint32_t>(event.data.u64 >> 32);
  if (fd < watches.size() && watches[fd].handler != nullptr &&
      watches[fd].generation == generation) {
    watches[fd].handler->on_ready(event.events);
  }
}

TimerId EventLoop::State::add(std::function<void()> work) {
  if (free_slots.empty()) {
    PDJOB_CHECK(timers.size() < 1U << kSlotBits);
    free_slots.push_back(static_cast<uint32_t>(timers.size()));
    timers.emplace_back();
  }
  const size_t slot = free_slots.back();
  free_slots.pop_back();
  const TimerId id{++timers_made << kSlotBits | slot};
  timers[slot] = {id, std::move(work)};
  return id;
}

bool EventLoop::State::is_alive(TimerId id) const {
  return id != TimerId{} && slot_of(id) < timers.size() && timers[slot_of(id)].id == id;
}

// Takes the timer's work; empty if it has run or was cancelled.
std::function<void()> EventLoop::State::take(TimerId id) {
  if (!is_alive(id)) {
    return nullptr;
  }
  Timer& timer = timers[slot_of(id)];
  timer.id = {};
  free_slots.push_back(static_cast<uint32_t>(slot_of(id)));
  return std::exchange(timer.work, nullptr);
}

void EventLoop::State::run_timers() {
  // A timer added during these calls runs in a later turn, so that a timer that renews itself
  // cannot block the loop.
  const TimerId last{(timers_made + 1) << kSlotBits};
  while (!timer_heap.empty() && timer_heap.front().when <= now && timer_heap.front().id < last) {
    std::pop_heap(timer_heap.begin(), timer_heap.end());
    const TimerId id = timer_heap.back().id;
    timer_heap.pop_back();
    if (const auto work = take(id)) {
      work();
    }
  }
}

void EventLoop::State::run_posted() {
  if (!woken.exchange(false)) {  // Before draining: work posted from here on wakes us again.
    return;
  }
  std::vector<std::function<void()>> work;
  posted.drain(work);
  for (const auto& item : work) {
    item();
  }
}

void EventLoop::State::end_turn() {
  ending.swap(turn_ends);
  for (size_t i = 0; i < ending.size(); ++i) {
    if (ending[i] != nullptr) {
      ending[i]->on_turn_end();
    }
  }
  ending.clear();
}

void EventLoop::State::drop_dead_timers() {
  const size_t alive = timers.size() - free_slots.size();
  if (timer_heap.size() > 2 * alive + kDeadTimersTolerated) {
    std::erase_if(timer_heap, [this](const DueTimer& timer) { return !is_alive(timer.id); });
    std::make_heap(timer_heap.begin(), timer_heap.end());
  }
}

int EventLoop::State::wait_ms() const {
  if (!turn_ends.empty()) {
    return 0;
  }
  if (timer_heap.empty() || timer_heap.front().when == kNever) {
    return -1;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(timer_heap.front().when - real_now());
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kLongest).count());
}

void EventLoop::State::rest() {
  if (turn_interval == Duration::zero()) {
    return;
  }
  const Instant time = real_now();
  next_turn = std::max(next_turn, time - kTurnsAhead * turn_interval) + turn_interval;
  if (next_turn > time) {
    const timespec left{.tv_sec = 0, .tv_nsec = (next_turn - time).count()};
    nanosleep(&left, nullptr);
  }
}

EventLoop::EventLoop() : state_(std::make_unique<State>()) {
  state_->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  PDJOB_CHECK(state_->epoll_fd >= 0, strerror(errno));
  state_->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  PDJOB_CHECK(state_->wake_fd >= 0, strerror(errno));
  const Status watched = watch(state_->wake_fd, EPOLLIN, *state_);
  PDJOB_CHECK(watched.has_value());
}

EventLoop::~EventLoop() {
  close(state_->wake_fd);
  close(state_->epoll_fd);
}

void EventLoop::pace_turns(Duration interval_min) {
  constexpr unsigned long kTimerSlackNs = 5000;  // The default of 50 us would double the interval.
  PDJOB_CHECK(interval_min < std::chrono::seconds(1));
  state_->turn_interval = interval_min;
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
}

void EventLoop::run() {
  State& state = *state_;
  state.running = true;
  std::array<epoll_event, kEventsPerTurn> events;
  while (!state.stopping.exchange(false)) {
    state.turn.end();
    state.rest();
    const int count = epoll_wait(state.epoll_fd, events.data(), kEventsPerTurn, state.wait_ms());
    PDJOB_CHECK(count >= 0 || errno == EINTR, strerror(errno));
    state.now = real_now();
    state.turn.begin(state.now);
    for (int i = 0; i < count; ++i) {
      state.dispatch(events[static_cast<size_t>(i)]);
    }
    state.run_posted();
    state.run_timers();
    state.end_turn();
  }
  state.end_turn();
  state.turn.end();
  state.running = false;
}

void EventLoop::stop() {
  state_->stopping = true;
  state_->wake();
}

void EventLoop::post(std::function<void()> work) {
  state_->posted.push_always(std::move(work));
  state_->wake();
}

Duration EventLoop::turn_lasted() const { return state_->turn.lasted(real_now()); }

Instant EventLoop::now() const { return state_->running ? state_->now : real_now(); }

Instant EventLoop::exact_now() const { return real_now(); }

TimerId EventLoop::call_at(Instant when, std::function<void()> work) {
  const TimerId id = state_->add(std::move(work));
  state_->timer_heap.push_back({when, id});
  std::push_heap(state_->timer_heap.begin(), state_->timer_heap.end());
  return id;
}

void EventLoop::cancel(TimerId timer) {
  // Taken first: destroying the work may call cancel() again.
  const auto cancelled = state_->take(timer);
  state_->drop_dead_timers();
}

void EventLoop::at_turn_end(TurnHandler& handler) { state_->turn_ends.push_back(&handler); }

void EventLoop::forget_turn_end(TurnHandler& handler) {
  std::erase(state_->turn_ends, &handler);
  std::ranges::replace(state_->ending, &handler, nullptr);
}

int64_t EventLoop::unix_seconds() const { return pdjob::unix_seconds(); }

uint64_t EventLoop::entropy() { return pdjob::entropy(); }

Result<std::unique_ptr<Stream>> EventLoop::connect(const SocketAddress& address) {
  PDJOB_TRY(Fd socket, connect_to(address));
  return std::unique_ptr<Stream>(std::make_unique<TcpStream>(*this, std::move(socket)));
}

Result<std::unique_ptr<Listener>> EventLoop::listen(const ListenOptions& options) {
  PDJOB_TRY(Fd socket, options.fd >= 0 ? adopt_listener(options.fd)
                                       : listen_on(options.host, options.port, options.use));
  return std::unique_ptr<Listener>(std::make_unique<TcpListener>(*this, std::move(socket)));
}

std::unique_ptr<Resolver> EventLoop::make_resolver() {
  return std::make_unique<ThreadResolver>(*this);
}

std::unique_ptr<Helper> EventLoop::make_helper(const std::string& name) {
  return std::make_unique<ThreadHelper>(name);
}

Status EventLoop::watch(int fd, uint32_t epoll_events, FdHandler& handler) {
  PDJOB_CHECK(fd >= 0);
  const auto index = static_cast<size_t>(fd);
  if (index >= state_->watches.size()) {
    state_->watches.resize(index + 1);
  }
  State::Watch& watch = state_->watches[index];
  PDJOB_CHECK(watch.handler == nullptr, fd, "is watched already, or was closed before unwatch()");
  epoll_event event{};
  event.events = epoll_events | EPOLLET;
  event.data.u64 = event_key(fd, watch.generation + 1);
  if (epoll_ctl(state_->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("epoll_ctl", ErrorCode::kInternal);
  }
  watch = {&handler, watch.generation + 1};
  return ok();
}

void EventLoop::unwatch(int fd) {
  const auto index = static_cast<size_t>(fd);
  if (fd < 0 || index >= state_->watches.size() || state_->watches[index].handler == nullptr) {
    return;
  }
  state_->watches[index].handler = nullptr;
  epoll_ctl(state_->epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace pdjob::net
