// A long line between two TUN devices: each packet waits for its turn on the line, takes a delay,
// and may be lost. Kernels without `tc netem` have no such line.
//
//   far_link FD FD SEED
//   stdin   one setting a line: DELAY_US LOSS_PPM BYTES_PER_SECOND QUEUE_BYTES
//   stdout  one JSON line for each: what has happened since the last one
//
// Delay, loss, rate and queue hold for each direction alone. A rate of 0 is no limit. A packet is
// dropped if the queue in front of the line has no room for it. The seed decides which packets are
// lost, by their order. It ends at the end of stdin.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;
using std::chrono::nanoseconds;

constexpr size_t kPacketBytesMax = 65536;
constexpr size_t kPacketsAtOnce = 256;  // Of one direction, before the others get a turn.

struct Setting {
  nanoseconds delay{};
  uint32_t loss_ppm = 0;
  double bytes_per_second = 0;
  double queue_bytes = 0;
};

struct Counts {
  uint64_t packets = 0;
  uint64_t bytes = 0;
  uint64_t lost = 0;
  uint64_t overflowed = 0;
};

class Direction {
 public:
  Direction(int from, int to) : from_(from), to_(to) {}

  int from() const { return from_; }
  Instant due() const { return waiting_.empty() ? Instant::max() : waiting_.front().due; }

  void take(const Setting& setting, std::mt19937_64& random, Counts& counts) {
    for (size_t i = 0; i < kPacketsAtOnce; ++i) {
      const ssize_t got = ::read(from_, buffer_.data(), buffer_.size());
      if (got <= 0) {
        return;
      }
      accept(std::vector<char>(buffer_.begin(), buffer_.begin() + got), setting, random, counts);
    }
  }

  void deliver(Instant now) {
    while (!waiting_.empty() && waiting_.front().due <= now) {
      const std::vector<char>& packet = waiting_.front().bytes;
      // A device that is full or down loses the packet, as a real one would.
      static_cast<void>(::write(to_, packet.data(), packet.size()) < 0);
      waiting_.pop_front();
    }
  }

 private:
  struct Packet {
    Instant due;
    std::vector<char> bytes;
  };

  void accept(std::vector<char> packet, const Setting& setting, std::mt19937_64& random,
              Counts& counts) {
    const Instant now = Clock::now();
    if (random() % 1'000'000 < setting.loss_ppm) {
      ++counts.lost;
      return;
    }
    Instant leaves = now;
    if (setting.bytes_per_second > 0) {
      free_ = std::max(free_, now);
      const double queued =
          std::chrono::duration<double>(free_ - now).count() * setting.bytes_per_second;
      if (queued + static_cast<double>(packet.size()) > setting.queue_bytes) {
        ++counts.overflowed;
        return;
      }
      const std::chrono::duration<double> takes(static_cast<double>(packet.size()) /
                                                setting.bytes_per_second);
      free_ += std::chrono::duration_cast<nanoseconds>(takes);
      leaves = free_;
    }
    ++counts.packets;
    counts.bytes += packet.size();
    // Packets keep their order, also when the delay shrinks.
    const Instant due = leaves + setting.delay;
    waiting_.push_back(
        {waiting_.empty() ? due : std::max(due, waiting_.back().due), std::move(packet)});
  }

  const int from_;
  const int to_;
  Instant free_{};  // When the line is idle again.
  std::deque<Packet> waiting_;
  std::vector<char> buffer_ = std::vector<char>(kPacketBytesMax);
};

class Line {
 public:
  Line(int one, int other, uint64_t seed) : ways_{{{one, other}, {other, one}}}, random_(seed) {}

  void run() {
    for (;;) {
      std::array<pollfd, 3> ready{pollfd{ways_[0].from(), POLLIN, 0},
                                  pollfd{ways_[1].from(), POLLIN, 0}, pollfd{0, POLLIN, 0}};
      const timespec timeout = until(std::min(ways_[0].due(), ways_[1].due()));
      ::ppoll(ready.data(), ready.size(), &timeout, nullptr);
      for (size_t i = 0; i < ways_.size(); ++i) {
        if ((ready[i].revents & POLLIN) != 0) {
          ways_[i].take(setting_, random_, counts_);
        }
      }
      for (Direction& way : ways_) {
        way.deliver(Clock::now());
      }
      if (ready[2].revents != 0 && !obey()) {
        return;
      }
    }
  }

 private:
  static timespec until(Instant due) {
    constexpr nanoseconds kLongest = std::chrono::seconds(1);
    const nanoseconds left =
        due == Instant::max()
            ? kLongest
            : std::clamp<nanoseconds>(due - Clock::now(), nanoseconds(0), kLongest);
    return {.tv_sec = left / std::chrono::seconds(1),
            .tv_nsec = left % std::chrono::seconds(1) / nanoseconds(1)};
  }

  bool obey() {
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), stdin) == nullptr) {
      return false;
    }
    int64_t delay_us = 0;
    uint32_t loss_ppm = 0;
    double rate = 0, queue = 0;
    if (!(std::istringstream(line.data()) >> delay_us >> loss_ppm >> rate >> queue)) {
      return false;
    }
    setting_ = {.delay = std::chrono::microseconds(delay_us),
                .loss_ppm = loss_ppm,
                .bytes_per_second = rate,
                .queue_bytes = queue};
    const Counts since = std::exchange(counts_, {});
    std::printf("{\"packets\": %lu, \"bytes\": %lu, \"lost\": %lu, \"overflowed\": %lu}\n",
                since.packets, since.bytes, since.lost, since.overflowed);
    std::fflush(stdout);
    return true;
  }

  std::array<Direction, 2> ways_;
  std::mt19937_64 random_;
  Setting setting_;
  Counts counts_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: far_link FD FD SEED   (settings: stdin)\n");
    return 2;
  }
  const auto number = [&](int at) { return std::strtoull(argv[at], nullptr, 10); };
  Line(static_cast<int>(number(1)), static_cast<int>(number(2)), number(3)).run();
  return 0;
}
