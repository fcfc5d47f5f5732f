// Compares two runs of 64 transfers of 0.25 to 16 MiB between two processes: all ready at the same
// moment on one link, and one at a time.
//
//   kv_fairness_bench [rounds]
//
// It prints one JSON line for each round and transport. A transfer's slowdown is its time among the
// others, divided by the median time of its size alone. "median" and "worst" are over the 64. A
// time runs from the last ready row until all rows are verified.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/limits.h"
#include "common/os/real_clock.h"
#include "kvtransfer/kv_endpoint.h"
#include "tests/bench/kv_ends.h"
#include "tests/bench/kv_rows.h"

namespace pdjob::bench {
namespace {

using namespace kvtransfer;

constexpr size_t kTransfers = 64;
constexpr size_t kSizes = 7;  // From 0.25 MiB on, each twice the one before.
constexpr std::chrono::milliseconds kGrantTime{20};

uint32_t rows_of(size_t transfer) {
  return static_cast<uint32_t>((limits::kMiB / 4 << transfer % kSizes) / kBytesPerToken);
}

// Read by the sender's process: `count` transfers, starting at `first`, with ids of `round`.
struct Order {
  uint64_t round = 0, first = 0, count = 0;

  TransferId id(uint64_t transfer) const { return {.high = round, .low = transfer + 1}; }
};

void serve(int from_bench, int to_bench) {
  std::vector<Region> sources;
  for (size_t i = 0; i < kTransfers; ++i) {
    sources.push_back(make_region(rows_of(i)));
  }
  const auto endpoint =
      *KvEndpoint::start(options("prefill", TransportKind::kAuto, [](const EndpointEvent&) {}));
  std::array<char, 256> address{};
  std::snprintf(address.data(), address.size(), "%d %s", endpoint->address().port,
                endpoint->address().unix_path.c_str());
  PDJOB_CHECK(::write(to_bench, address.data(), address.size()) > 0);
  for (Order order; ::read(from_bench, &order, sizeof order) == sizeof order;) {
    const uint64_t end = order.first + order.count;
    for (uint64_t i = order.first; i < end; ++i) {
      endpoint->offer(order.id(i), sources[i], soon());
      fill(sources[i], 0, sources[i].rows_max, order.round);
    }
    std::this_thread::sleep_for(kGrantTime);
    for (uint64_t i = order.first; i < end; ++i) {
      endpoint->commit(order.id(i), sources[i].rows_max, {});
    }
  }
}

class Receiver {
 public:
  Receiver(TransportKind transport, EndpointAddress peer)
      : peer_(std::move(peer)),
        endpoint_(*KvEndpoint::start(options("decode", transport, [this](EndpointEvent event) {
          PDJOB_CHECK(std::holds_alternative<FetchDone>(event));
          const auto& done = std::get<FetchDone>(event);
          seconds_[done.id.low - 1] = seconds(done.visible);
          if (--left_ == 0) {
            all_done_.set_value();
          }
        }))) {
    peer_.host_id = endpoint_->address().host_id;
    for (size_t i = 0; i < kTransfers; ++i) {
      targets_.push_back(make_region(rows_of(i)));
    }
  }
  // Runs the order's transfers. Returns their seconds, each at its transfer's index.
  std::vector<double> fetch(const Order& order, int to_sender) {
    all_done_ = {};
    left_ = order.count;
    auto done = all_done_.get_future();
    for (uint64_t i = order.first; i < order.first + order.count; ++i) {
      endpoint_->fetch(order.id(i), peer_, targets_[i], targets_[i].rows_max, soon());
    }
    PDJOB_CHECK(::write(to_sender, &order, sizeof order) == sizeof order);
    done.get();
    return seconds_;
  }

 private:
  EndpointAddress peer_;
  std::vector<Region> targets_;
  std::vector<double> seconds_ = std::vector<double>(kTransfers);
  std::atomic<size_t> left_ = 0;
  std::promise<void> all_done_;
  std::unique_ptr<KvEndpoint> endpoint_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void measure(Receiver& receiver, const char* name, uint64_t& round, int to_sender, bool print) {
  std::map<uint32_t, std::vector<double>> alone;
  double seconds_alone = 0;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < kTransfers; ++i) {
    const double taken = receiver.fetch({.round = ++round, .first = i, .count = 1}, to_sender)[i];
    alone[rows_of(i)].push_back(taken);
    seconds_alone += taken;
    bytes += rows_of(i) * kBytesPerToken;
  }
  const std::vector<double> together =
      receiver.fetch({.round = ++round, .first = 0, .count = kTransfers}, to_sender);
  std::vector<double> slowdowns;
  for (size_t i = 0; i < kTransfers; ++i) {
    slowdowns.push_back(together[i] / median(alone[rows_of(i)]));
  }
  const double last = *std::max_element(together.begin(), together.end());
  if (print) {
    std::printf(
        "{\"transport\": \"%s\", \"median\": %.2f, \"worst\": %.2f, \"bytes_per_second\": %.4g, "
        "\"bytes_per_second_alone\": %.4g}\n",
        name, median(slowdowns), *std::max_element(slowdowns.begin(), slowdowns.end()),
        static_cast<double>(bytes) / last, static_cast<double>(bytes) / seconds_alone);
    std::fflush(stdout);
  }
}

void run(uint64_t rounds) {
  std::array<int, 2> to_sender, to_bench;
  PDJOB_CHECK(::pipe(to_sender.data()) == 0 && ::pipe(to_bench.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(to_sender[1]);
    keep_to_core(0);
    serve(to_sender[0], to_bench[1]);
    ::_exit(0);
  }
  keep_to_core(1);
  EndpointAddress sender{.engine_id = "prefill", .host = "127.0.0.1"};
  std::array<char, 256> address{};
  PDJOB_CHECK(::read(to_bench[0], address.data(), address.size()) > 0);
  std::istringstream(address.data()) >> sender.port >> sender.unix_path;
  {
    Receiver by_shm(TransportKind::kShm, sender), by_tcp(TransportKind::kTcp, sender);
    uint64_t id = 0;
    for (uint64_t round = 0; round <= rounds; ++round) {  // Round 0 warms up.
      measure(by_shm, "shm", id, to_sender[1], round > 0);
      measure(by_tcp, "tcp", id, to_sender[1], round > 0);
    }
  }
  ::close(to_sender[1]);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace pdjob::bench

int main(int argc, char** argv) {
  const unsigned long rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 5;
  pdjob::bench::run(rounds);
  return 0;
}
