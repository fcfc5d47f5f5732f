// One end of KV transfers over a line between two hosts, and of plain TCP over the same line.
//
//   kv_link_bench sender HOST STREAMS                      HOST: its own address
//   kv_link_bench receiver HOST STREAMS SENDER PORT PORT   the sender's address and its two ports
//
// The sender first prints {"kv_port": N, "plain_port": N}. Then each end obeys its stdin, one order
// a line, and answers each with one JSON line:
//
//   sender    offer FIRST COUNT TOKENS    transfers FIRST..FIRST+COUNT-1, all rows ready
//             send STREAMS BYTES          plain TCP: waits for that many connections
//   receiver  fetch FIRST COUNT TOKENS    {"seconds": S}: from the call to all rows being verified
//             receive STREAMS BYTES       {"seconds": S}: from the connections to the last byte
//
// STREAMS of the command line is kvtransfer.tcp.streams. KV is encrypted if the hosts differ. The
// plain connections are new ones: they share BYTES, and write from one buffer. links_bench.py
// chooses the rounds.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "kvtransfer/kv_endpoint.h"
#include "tests/bench/kv_ends.h"
#include "tests/bench/kv_rows.h"

namespace pdjob::bench {
namespace {

using namespace kvtransfer;

constexpr size_t kPieceBytes = size_t{256} * 1024;
constexpr std::chrono::minutes kPatience{5};

Instant deadline() { return real_now() + kPatience; }

// --- plain TCP

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  PDJOB_CHECK(::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, host);
  return address;
}

int listen_plain(const std::string& host) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(host, 0);
  PDJOB_CHECK(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              ::listen(listener, 64) == 0);
  return listener;
}

uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  PDJOB_CHECK(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

// Runs `move` on each socket, each on a thread of its own, and closes it.
template <typename Move>
void on_each(const std::vector<int>& sockets, const Move& move) {
  std::vector<std::thread> threads;
  for (const int socket : sockets) {
    threads.emplace_back([&move, socket] {
      move(socket);
      ::close(socket);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void send_plain(int listener, size_t streams, uint64_t bytes) {
  std::vector<int> sockets;
  while (sockets.size() < streams) {
    sockets.push_back(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    PDJOB_CHECK(sockets.back() >= 0, errno);
  }
  on_each(sockets, [&](int socket) {
    const std::vector<char> buffer(kPieceBytes, 'x');
    for (uint64_t left = bytes / streams; left > 0;) {
      const ssize_t sent =
          ::send(socket, buffer.data(), std::min<uint64_t>(left, buffer.size()), MSG_NOSIGNAL);
      PDJOB_CHECK(sent > 0, errno);
      left -= static_cast<uint64_t>(sent);
    }
  });
}

double receive_plain(const sockaddr_in& from, size_t streams, uint64_t bytes) {
  std::vector<int> sockets;
  for (size_t i = 0; i < streams; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    PDJOB_CHECK(
        ::connect(sockets.back(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0,
        errno);
  }
  const Instant begin = real_now();
  on_each(sockets, [&](int socket) {
    std::vector<char> buffer(kPieceBytes);
    for (uint64_t left = bytes / streams; left > 0;) {
      const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
      PDJOB_CHECK(got > 0, errno);
      left -= static_cast<uint64_t>(got);
    }
  });
  return seconds(real_now() - begin);
}

// --- KV

EndpointOptions options_at(const char* engine_id, const std::string& host, uint32_t streams,
                           std::function<void(EndpointEvent)> sink) {
  EndpointOptions made = options(engine_id, TransportKind::kTcp, std::move(sink));
  made.config.listen_host = host;
  made.config.tcp.streams = streams;
  made.keys = LinkAuthority("a job").issue(engine_id);
  return made;
}

// Regions of transfers that run at once, made when they are first needed.
class Regions {
 public:
  const Region& at(uint64_t index, uint32_t tokens) {
    auto& of_size = regions_[tokens];
    while (of_size.size() <= index) {
      of_size.push_back(make_region(tokens));
    }
    return of_size[index];
  }

 private:
  std::map<uint32_t, std::vector<Region>> regions_;
};

TransferId id_of(uint64_t number) { return {.high = 0, .low = number + 1}; }

void send(const std::string& host, uint32_t streams) {
  const auto endpoint =
      *KvEndpoint::start(options_at("prefill", host, streams, [](const EndpointEvent&) {}));
  const int listener = listen_plain(host);
  std::printf("{\"kv_port\": %d, \"plain_port\": %d}\n", endpoint->address().port,
              port_of(listener));
  std::fflush(stdout);
  Regions regions;
  for (std::string word; std::cin >> word;) {
    uint64_t first = 0, count = 0, bytes = 0;
    if (word == "offer") {
      uint32_t tokens = 0;
      std::cin >> first >> count >> tokens;
      for (uint64_t i = 0; i < count; ++i) {
        const Region& source = regions.at(i, tokens);
        fill(source, 0, tokens, first + i);
        endpoint->offer(id_of(first + i), source, deadline());
        endpoint->commit(id_of(first + i), tokens, {});
      }
    } else {
      std::cin >> count >> bytes;
      send_plain(listener, count, bytes);
    }
    std::printf("{}\n");
    std::fflush(stdout);
  }
}

class Receiver {
 public:
  Receiver(const std::string& host, uint32_t streams, EndpointAddress peer)
      : peer_(std::move(peer)),
        endpoint_(*KvEndpoint::start(
            options_at("decode", host, streams, [this](const EndpointEvent& event) {
              PDJOB_CHECK(std::holds_alternative<FetchDone>(event));
              if (--left_ == 0) {
                all_done_.set_value();
              }
            }))) {}

  double fetch(uint64_t first, uint64_t count, uint32_t tokens) {
    all_done_ = {};
    left_ = count;
    auto done = all_done_.get_future();
    for (uint64_t i = 0; i < count; ++i) {
      regions_.at(i, tokens);
    }
    const Instant begin = real_now();
    for (uint64_t i = 0; i < count; ++i) {
      endpoint_->fetch(id_of(first + i), peer_, regions_.at(i, tokens), tokens, deadline());
    }
    PDJOB_CHECK(done.wait_for(kPatience) == std::future_status::ready);
    return seconds(real_now() - begin);
  }

 private:
  EndpointAddress peer_;
  Regions regions_;
  std::atomic<uint64_t> left_ = 0;
  std::promise<void> all_done_;
  std::unique_ptr<KvEndpoint> endpoint_;
};

void receive(const std::string& host, uint32_t streams, const EndpointAddress& peer,
             uint16_t plain_port) {
  Receiver receiver(host, streams, peer);
  for (std::string word; std::cin >> word;) {
    uint64_t first = 0, count = 0, bytes = 0;
    double taken = 0;
    if (word == "fetch") {
      uint32_t tokens = 0;
      std::cin >> first >> count >> tokens;
      taken = receiver.fetch(first, count, tokens);
    } else {
      std::cin >> count >> bytes;
      taken = receive_plain(address_of(peer.host, plain_port), count, bytes);
    }
    std::printf("{\"seconds\": %.6f}\n", taken);
    std::fflush(stdout);
  }
}

uint16_t number(const char* text) { return static_cast<uint16_t>(std::strtoul(text, nullptr, 10)); }

}  // namespace
}  // namespace pdjob::bench

int main(int argc, char** argv) {
  using namespace pdjob::bench;
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "sender" && argc == 4) {
    send(argv[2], number(argv[3]));
  } else if (role == "receiver" && argc == 7) {
    receive(argv[2], number(argv[3]),
            {.engine_id = "prefill", .host = argv[4], .port = number(argv[5])}, number(argv[6]));
  } else {
    std::fprintf(stderr, "usage: kv_link_bench sender|receiver HOST STREAMS [SENDER PORT PORT]\n");
    return 2;
  }
  return 0;
}
