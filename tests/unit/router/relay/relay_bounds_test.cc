// Bounds on the router's costs. A token needs no allocation. A request leaves nothing behind. Idle
// connections and slow readers harm nobody else. The router runs in its own thread, whose
// allocations are counted. The test plays clients and workers with plain blocking sockets.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "net/loop/event_loop.h"
#include "net/loop/socket.h"
#include "router/http_api.h"
#include "tests/support/allocation_count.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kJson = R"({"choices":[{"text":" upon"}]})";
// The end of a request for a stream, as an engine of another make gets it.
constexpr std::string_view kAsked = R"("stream":true,"return_token_ids":true})";
constexpr std::string_view kPrefilled =
    R"({"id":"p","kv_transfer_params":{"remote_block_ids":[[1]]}})";
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string with_length(std::string_view head, std::string_view body) {
  return std::string(head) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

// One end of a blocking connection.
class Peer {
 public:
  explicit Peer(net::Fd fd) : fd_(std::move(fd)) { net::set_no_delay(fd_.get()); }

  static Peer connect_to(uint16_t port) {
    net::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return Peer(std::move(fd));
  }

  void send(std::string_view bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Sends until the other end takes no more. Returns the number of bytes taken.
  size_t send_all_it_takes(std::string_view bytes, size_t bytes_max) {
    size_t taken = 0;
    timeval patience{.tv_sec = 0, .tv_usec = 300'000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (taken < bytes_max) {
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      taken += static_cast<size_t>(std::max<ssize_t>(count, 0));
      if (count != static_cast<ssize_t>(bytes.size())) {
        break;
      }
    }
    return taken;
  }
  void request(std::string_view body) {
    send(with_length("POST /v1/completions HTTP/1.1\r\nHost: r\r\n", body));
  }
  void reply(std::string_view body) { send(with_length("HTTP/1.1 200 OK\r\n", body)); }
  // Receives up to and including `end`.
  std::string receive_until(std::string_view end) {
    std::string received;
    while (!received.ends_with(end)) {
      char buffer[4096];
      const ssize_t count = recv(fd_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) {
        ADD_FAILURE() << "the connection ended after: " << received;
        break;
      }
      received.append(buffer, static_cast<size_t>(count));
    }
    return received;
  }
  void receive_exactly(size_t bytes) {
    char buffer[4096];
    EXPECT_EQ(recv(fd_.get(), buffer, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }

 private:
  net::Fd fd_;
};

// A worker's address. The test plays the worker at each accepted connection.
struct Listener {
  Listener() { fcntl(fd.get(), F_SETFL, 0); }  // Blocks.

  net::Fd fd = std::move(*net::listen_on("127.0.0.1", 0));
  Peer accept() const { return Peer(net::Fd(::accept(fd.get(), nullptr, nullptr))); }
  net::WorkerEntry entry(std::string name, net::Role role) const {
    return {.name = std::move(name),
            .role = role,
            .host = "127.0.0.1",
            .port = net::local_port(fd.get())};
  }
};

class RouterThread {
 public:
  explicit RouterThread(std::vector<net::WorkerEntry> workers)
      : thread_([this, workers = std::move(workers)] { run(workers); }) {
    port = port_promise_.get_future().get();
  }
  ~RouterThread() {
    loop_->stop();
    thread_.join();
  }

  uint16_t port = 0;

 private:
  void run(const std::vector<net::WorkerEntry>& workers) {
    counted = true;
    loop_ = std::make_unique<net::EventLoop>();
    auto api = std::move(*HttpApi::open(*loop_, {}, {}, {}, [] {}));
    api->relay().submit(WorkersChanged{workers});
    port_promise_.set_value(api->server().port());
    loop_->run();
  }

  std::promise<uint16_t> port_promise_;
  std::unique_ptr<net::EventLoop> loop_;
  std::thread thread_;
};

// The sockets block. So when an answer has arrived, the router has handled the message, except for
// the work that it does after answering.
template <class Value>
bool comes_to(const std::atomic<Value>& value, Value wanted) {
  for (int i = 0; i < 10'000 && value != wanted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return value == wanted;
}

// Returns the value once it has not changed for 20 ms.
template <class Value>
Value comes_to_rest(const std::atomic<Value>& value) {
  Value last = value;
  for (int same = 0, i = 0; same < 20 && i < 10'000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    same = std::exchange(last, value.load()) == value.load() ? same + 1 : 0;
  }
  return last;
}

// `token`: a chunk of an engine of another make. `passed`: what the client gets of it.
void expect_no_allocation_for(std::string_view token, std::string_view passed) {
  const Listener worker;
  const RouterThread router({worker.entry("b0", net::Role::kBoth)});
  Peer client = Peer::connect_to(router.port);
  client.request(R"({"prompt":"Once","stream":true})");
  Peer leg = worker.accept();
  leg.receive_until(kAsked);
  leg.send(kStreamHead);
  client.receive_until("\r\n\r\n");
  const auto pass_tokens = [&](int count) {
    for (int i = 0; i < count; ++i) {
      leg.send(token);
      client.receive_exactly(passed.size());
    }
  };
  constexpr int kTokens = 2000;
  leg.send(token);
  EXPECT_EQ(client.receive_until("\n\n\r\n"), passed);
  pass_tokens(10);
  const uint64_t before = allocations_made;
  pass_tokens(kTokens);
  // The loop's own timers may grow once, and the list of tokens doubles now and then.
  EXPECT_LT(allocations_made - before, kTokens / 100);
}

TEST(RelayBounds, NothingIsAllocatedForAToken) {
  constexpr std::string_view kToken = "f\r\ndata: {\"t\":1}\n\n\r\n";
  expect_no_allocation_for(kToken, kToken);
}

TEST(RelayBounds, NothingIsAllocatedForATokenThatAnotherEngineMayGoOnFrom) {
  expect_no_allocation_for(
      "62\r\ndata: "
      R"({"choices":[{"text":" a","finish_reason":null,"token_ids":[17],"prompt_token_ids":[1,2]}]})"
      "\n\n\r\n",
      "61\r\ndata: "
      R"({"choices":[{"text":" a","finish_reason":null,"token_ids":null,"prompt_token_ids":null}]})"
      "\n\n\r\n");
}

TEST(RelayBounds, NothingIsLeftOfARequest) {
  const Listener prefill;
  const Listener decode;
  const RouterThread router(
      {prefill.entry("p0", net::Role::kPrefill), decode.entry("d0", net::Role::kDecode)});
  Peer client = Peer::connect_to(router.port);
  constexpr std::string_view kRequest = R"({"prompt":"Once","max_tokens":3})";
  client.request(kRequest);
  Peer first_leg = prefill.accept();
  first_leg.receive_until("}}");
  first_leg.reply(kPrefilled);
  Peer second_leg = decode.accept();
  second_leg.receive_until("}}");
  second_leg.reply(kJson);
  client.receive_until(kJson);
  const auto ask = [&](int count) {
    for (int i = 0; i < count; ++i) {
      client.request(kRequest);
      first_leg.receive_until("}}");
      first_leg.reply(kPrefilled);
      second_leg.receive_until("}}");
      second_leg.reply(kJson);
      client.receive_until(kJson);
    }
  };
  ask(100);
  const int64_t alive = comes_to_rest(allocations_alive);
  ask(3000);
  EXPECT_TRUE(comes_to(allocations_alive, alive)) << allocations_alive - alive << " more";
}

TEST(RelayBounds, IdleConnectionsAndSlowReadersLeaveOthersUnharmed) {
  rlimit descriptors{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  descriptors.rlim_cur = descriptors.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  constexpr rlim_t kIdle = 10'000;
  constexpr rlim_t kOthers = 1000;
  const rlim_t idle_count = std::min(kIdle, (descriptors.rlim_cur - kOthers) / 2);
  constexpr int kSlowReaders = 8;
  constexpr size_t kStreamBytes = 64 << 20;

  const Listener worker;
  const RouterThread router({worker.entry("b0", net::Role::kBoth)});
  std::vector<Peer> idle;
  for (rlim_t i = 0; i < idle_count; ++i) {
    idle.push_back(Peer::connect_to(router.port));
  }
  std::vector<Peer> slow;
  const std::string block = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  for (int i = 0; i < kSlowReaders; ++i) {
    slow.push_back(Peer::connect_to(router.port));
    slow.back().request(R"({"prompt":"Once","stream":true})");
    slow.push_back(worker.accept());
    slow.back().receive_until(kAsked);
    slow.back().send(kStreamHead);
    // The worker is paused long before it has sent everything: the router does not keep unread
    // data.
    EXPECT_LT(slow.back().send_all_it_takes(block, kStreamBytes), kStreamBytes);
  }
  Peer client = Peer::connect_to(router.port);
  constexpr std::string_view kRequest = R"({"prompt":"Once"})";
  client.request(kRequest);
  Peer leg = worker.accept();
  leg.receive_until(kRequest);
  leg.reply(kJson);
  client.receive_until(kJson);
  for (int i = 0; i < 200; ++i) {
    client.request(kRequest);
    leg.receive_until(kRequest);
    leg.reply(kJson);
    client.receive_until(kJson);
  }
}

}  // namespace
}  // namespace pdjob::router
