// Moves the KV rows of a prompt between two processes, one order at a time:
//
//   kv_bench TOKENS...     the sizes that may be ordered
//   stdin   one order a line: WAY PACE TOKENS
//   stdout  one JSON line for each: {"seconds": S}
//
// WAY is one of these.
// - shm, tcp, tls: ours. tls is tcp with kvtransfer.tcp.encrypt.
// - socket, socket-default, socket-zerocopy: kv_socket_loop.h.
// - memcpy: one thread of the sender's process copies the same freshly written rows. It writes to
//   the same shared memory as shm, by its own mapping. It waits until the receiver has read what
//   the last way left there.
//
// PACE is one of these.
// - chunks: the sender writes 256 tokens every 20 ms, as a prefill does.
// - rest: the same, but everything moves at the end.
// - at-once: everything is written, and then moves.
//
// Seconds run from the last row being ready to everything being in place in the receiver. For our
// ways they include verification and the last logits. kv_bench.py chooses the rounds and computes
// the ratios.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
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
#include "common/os/real_clock.h"
#include "kvtransfer/kv_endpoint.h"
#include "tests/bench/kv_ends.h"
#include "tests/bench/kv_rows.h"
#include "tests/bench/kv_socket_loop.h"

namespace pdjob::bench {
namespace {

using namespace kvtransfer;

constexpr size_t kTailBytes = size_t{49152} * 4;  // The logits of the model's vocabulary.
constexpr uint32_t kChunkTokens = 256;            // The default of prefill_config.
constexpr std::chrono::milliseconds kChunkTime{20};
// Long enough for the grant to arrive, as in a real prefill.
constexpr std::chrono::milliseconds kGrantTime{1};

enum class Way : uint64_t { kShm, kTcp, kTls, kSocket, kSocketDefault, kSocketZeroCopy, kMemcpy };
std::map<std::string, Way> ways() {
  return {{"shm", Way::kShm},
          {"tcp", Way::kTcp},
          {"tls", Way::kTls},
          {"socket", Way::kSocket},
          {"socket-default", Way::kSocketDefault},
          {"socket-zerocopy", Way::kSocketZeroCopy},
          {"memcpy", Way::kMemcpy}};
}
enum class Pace : uint64_t { kChunks, kRest, kAtOnce };
std::map<std::string, Pace> paces() {
  return {{"chunks", Pace::kChunks}, {"rest", Pace::kRest}, {"at-once", Pace::kAtOnce}};
}

// An order, as the sender's process reads it from its pipe.
struct Order {
  uint64_t id = 0;
  Way way = Way::kMemcpy;
  Pace pace = Pace::kAtOnce;
  uint64_t tokens = 0;
};

// Shared by both processes; made before the fork.
struct Shared {
  std::map<uint64_t, Region> targets;  // The key is the size in tokens.
  SocketPair plain = connect_loopback("reno");
  SocketPair by_default = connect_loopback(nullptr);
  std::array<int, 2> to_sender{}, to_bench{};

  const SocketPair& sockets(Way way) const {
    return way == Way::kSocketDefault ? by_default : plain;
  }
};

EndpointOptions encrypted(EndpointOptions options) {
  options.config.tcp.encrypt = Encrypt::kAlways;
  options.keys = LinkAuthority("a job").issue(options.engine_id);
  return options;
}

template <typename T>
void put(int pipe, const T& value) {
  PDJOB_CHECK(::write(pipe, &value, sizeof value) == sizeof value);
}
template <typename T>
bool get(int pipe, T& value) {
  return ::read(pipe, &value, sizeof value) == sizeof value;
}

// Writes all rows. Calls `ready` for each chunk except the last. Returns the first row that is
// still to move.
template <typename Ready>
uint32_t compute(const Region& region, const Order& order, const Ready& ready) {
  uint32_t first = 0;
  if (order.pace != Pace::kAtOnce) {
    for (; region.rows_max - first > kChunkTokens; first += kChunkTokens) {
      fill(region, first, kChunkTokens, order.id);
      if (order.pace == Pace::kChunks) {
        ready(first + kChunkTokens);
      }
      std::this_thread::sleep_for(kChunkTime);
    }
  }
  fill(region, first, region.rows_max - first, order.id);
  return order.pace == Pace::kChunks ? first : 0;
}

// The sender's process: tells its addresses, then serves orders. It times the ways that are not
// ours: it sends when the last row was ready and, for memcpy, when it was copied.
void serve(const Shared& shared) {
  std::map<uint64_t, Region> sources;
  for (const auto& [tokens, target] : shared.targets) {
    sources[tokens] = make_region(target.rows_max);
    // Touches the pages: a fork does not inherit those of shared mappings.
    copy(sources[tokens], target, 0);
  }
  const auto ignore = [](const EndpointEvent&) {};
  const auto plain = *KvEndpoint::start(options("prefill", TransportKind::kAuto, ignore));
  const auto tls = *KvEndpoint::start(encrypted(options("prefill", TransportKind::kTcp, ignore)));
  std::array<char, 256> address{};
  std::snprintf(address.data(), address.size(), "%d %d %s", plain->address().port,
                tls->address().port, plain->address().unix_path.c_str());
  put(shared.to_bench[1], address);
  for (Order order; get(shared.to_sender[0], order);) {
    const Region& source = sources.at(order.tokens);
    if (order.way <= Way::kTls) {
      const auto& endpoint = order.way == Way::kTls ? tls : plain;
      const TransferId id{.high = 0, .low = order.id};
      endpoint->offer(id, source, soon());
      std::this_thread::sleep_for(kGrantTime);
      compute(source, order, [&](uint32_t rows) { endpoint->rows_ready(id, rows); });
      endpoint->commit(id, source.rows_max, std::vector<std::byte>(kTailBytes));
      continue;
    }
    const uint32_t first = compute(source, order, [](uint32_t) {});
    put(shared.to_bench[1], real_now());
    if (order.way == Way::kMemcpy) {
      copy(source, shared.targets.at(order.tokens), first);
      put(shared.to_bench[1], real_now());
    } else {
      send_rows(shared.sockets(order.way).sender, source,
                order.way == Way::kSocketZeroCopy ? SocketMode::kZeroCopy : SocketMode::kPlain);
    }
  }
}

class Receiver {
 public:
  Receiver(Way way, EndpointAddress peer) : peer_(std::move(peer)) {
    EndpointOptions made =
        options("decode", way == Way::kShm ? TransportKind::kShm : TransportKind::kTcp,
                [this](EndpointEvent event) {
                  PDJOB_CHECK(std::holds_alternative<FetchDone>(event));
                  done_.set_value(std::get<FetchDone>(std::move(event)));
                });
    endpoint_ = *KvEndpoint::start(way == Way::kTls ? encrypted(std::move(made)) : std::move(made));
    peer_.host_id = endpoint_->address().host_id;
  }
  Duration fetch(const Order& order, const Shared& shared) {
    done_ = {};
    auto done = done_.get_future();
    const Region& target = shared.targets.at(order.tokens);
    endpoint_->fetch({.high = 0, .low = order.id}, peer_, target, target.rows_max, soon());
    put(shared.to_sender[1], order);
    return done.get().visible;
  }

 private:
  EndpointAddress peer_;
  std::promise<FetchDone> done_;
  std::unique_ptr<KvEndpoint> endpoint_;
};

// Runs an order by a way that is not ours, and returns its time.
Duration without_us(const Order& order, const Shared& shared) {
  const Region& target = shared.targets.at(order.tokens);
  Instant ready, copied;
  put(shared.to_sender[1], order);
  PDJOB_CHECK(get(shared.to_bench[0], ready));
  if (order.way == Way::kMemcpy) {
    PDJOB_CHECK(get(shared.to_bench[0], copied));
    volatile uint64_t sum = read(target);
    static_cast<void>(sum);
    return copied - ready;
  }
  receive_rows(shared.sockets(order.way).receiver, target);
  return real_now() - ready;
}

void obey(const Shared& shared) {
  EndpointAddress sender{.engine_id = "prefill", .host = "127.0.0.1"};
  std::array<char, 256> address{};
  PDJOB_CHECK(get(shared.to_bench[0], address));
  uint16_t tls_port = 0;
  std::istringstream(address.data()) >> sender.port >> tls_port >> sender.unix_path;
  Receiver by_shm(Way::kShm, sender), by_tcp(Way::kTcp, sender);
  sender.port = tls_port;
  Receiver by_tls(Way::kTls, sender);
  const auto by_way = ways();
  const auto by_pace = paces();
  Order order;
  for (std::string way, pace; std::cin >> way >> pace >> order.tokens;) {
    ++order.id;
    order.way = by_way.at(way);
    order.pace = by_pace.at(pace);
    const Duration taken = order.way == Way::kShm   ? by_shm.fetch(order, shared)
                           : order.way == Way::kTcp ? by_tcp.fetch(order, shared)
                           : order.way == Way::kTls ? by_tls.fetch(order, shared)
                                                    : without_us(order, shared);
    std::printf("{\"seconds\": %.9f}\n", seconds(taken));
    std::fflush(stdout);
  }
}

void run(const std::vector<uint32_t>& sizes) {
  Shared shared;
  for (const uint32_t tokens : sizes) {
    shared.targets[tokens] = make_region(tokens);
  }
  PDJOB_CHECK(::pipe(shared.to_sender.data()) == 0 && ::pipe(shared.to_bench.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(shared.to_sender[1]);
    keep_to_core(0);
    serve(shared);
    ::_exit(0);
  }
  keep_to_core(1);
  obey(shared);
  ::close(shared.to_sender[1]);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace pdjob::bench

int main(int argc, char** argv) {
  std::vector<uint32_t> sizes;
  for (int i = 1; i < argc; ++i) {
    sizes.push_back(static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  }
  if (sizes.empty()) {
    std::fprintf(stderr, "usage: kv_bench TOKENS...   (orders: stdin)\n");
    return 2;
  }
  pdjob::bench::run(sizes);
  return 0;
}
