// An engine that computes nothing, for router_bench.py. It speaks OpenAI's wire form with fixed
// answers, vLLM's two-hop protocol and SGLang's bootstrap fields, and it counts requests. It shares
// a core with the load generator, so it does as little as it can. It uses no code of pdjob.
//
//   router_backend PORT
//
// - POST: replies with JSON. With "stream":true it sends 64 server-sent events, each in its own
//   chunk and send. "itl=N" anywhere in the body spaces them N microseconds apart.
// - GET /stats returns the counts. GET /reset clears them. Any other GET succeeds.
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace {

using std::string_view_literals::operator""sv;

constexpr int kEvents = 64;
constexpr size_t kReceiveBytes = 65536;
constexpr uint64_t kListenerKey = 0;
constexpr uint64_t kTimerKey = 1;
constexpr uint64_t kConnectionsFrom = 2;

constexpr std::string_view kAnswer =
    R"({"id":"cmpl-1","object":"text_completion","created":1795259969,"model":"tiny","choices":[{"index":0,)"
    R"("text":" the quick brown fox jumps over the lazy dog and then returns a list of names","logprobs":null,)"
    R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":41,"total_tokens":57,)"
    R"("completion_tokens":16},"kv_transfer_params":null})";
constexpr std::string_view kPrefillAnswer =
    R"({"id":"cmpl-1","object":"text_completion","created":1795259969,"model":"tiny","choices":[{"index":0,)"
    R"("text":" the","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":41,)"
    R"("total_tokens":42,"completion_tokens":1},"kv_transfer_params":{"do_remote_prefill":true,)"
    R"("do_remote_decode":false,"remote_block_ids":[[1,2,3]],)"
    R"("remote_engine_id":"2cb4efb5-3c5b-4ee8-8081-c0c0efe116d4","remote_request_id":"cmpl-req-1-0-b464be1e",)"
    R"("remote_host":"127.0.0.1","remote_port":5601,"tp_size":1,"remote_num_tokens":41,"transfer_mode":"pull"}})";
constexpr std::string_view kModels =
    R"({"object":"list","data":[{"id":"tiny","object":"model","created":1,"owned_by":"vllm"}]})";
constexpr std::string_view kInfo =
    R"({"model_path":"tiny","served_model_name":"tiny","tokenizer_path":"tiny","is_generation":true,"dp_size":1,"tp_size":1})";
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    "transfer-encoding: chunked\r\n\r\n";
constexpr std::string_view kEvent =
    R"(data: {"id":"cmpl-1","object":"text_completion","created":1795259969,"model":"tiny","choices":[{"index":0,)"
    R"("text":" token","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null})"
    "\n\n";
constexpr std::string_view kLastChunks = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000L + time.tv_nsec;
}

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Counts {
  uint64_t requests = 0;
  uint64_t prefills = 0;
  uint64_t fetches = 0;  // Requests that carry a prefill's kv_transfer_params.
  uint64_t bootstraps = 0;
  uint64_t connections = 0;
};

struct Connection {
  int fd = -1;
  std::string input;
  std::string output;  // Bytes that the socket has yet to take.
  int events_left = 0;
  int64_t pace_ns = 0;
};

class Backend {
 public:
  explicit Backend(uint16_t port);
  [[noreturn]] void run();

 private:
  // The time of the next event, and the connection's key.
  using Due = std::pair<int64_t, uint64_t>;

  void watch(int fd, uint64_t key, uint32_t events);
  void accept_all();
  void receive(uint64_t key, bool ended);
  bool take_request(uint64_t key, Connection& connection);
  void answer_get(Connection& connection, std::string_view head);
  void answer_post(uint64_t key, Connection& connection, std::string_view body);
  void send_json(Connection& connection, std::string_view body);
  void send_event(Connection& connection);
  void send(Connection& connection, std::string_view bytes);
  void send_due();
  void close_connection(uint64_t key);

  const int epoll_ = epoll_create1(0);
  const int timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  std::unordered_map<uint64_t, Connection> connections_;
  uint64_t keys_made_ = kConnectionsFrom;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::string event_chunk_;
  std::array<char, kReceiveBytes> buffer_;
  Counts counts_;
};

Backend::Backend(uint16_t port) {
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 4096) != 0) {
    die("router_backend: listen");
  }
  std::array<char, 16> size;
  const auto end = std::to_chars(size.data(), size.data() + size.size(), kEvent.size(), 16);
  event_chunk_.append(size.data(), end.ptr).append("\r\n").append(kEvent).append("\r\n");
  watch(listener_, kListenerKey, EPOLLIN);
  watch(timer_, kTimerKey, EPOLLIN);
}

void Backend::run() {
  std::array<epoll_event, 256> events;
  while (true) {
    const int count = epoll_wait(epoll_, events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[static_cast<size_t>(i)].data.u64;
      if (key == kListenerKey) {
        accept_all();
      } else if (key == kTimerKey) {
        send_due();
      } else if (const auto found = connections_.find(key); found != connections_.end()) {
        if ((events[static_cast<size_t>(i)].events & EPOLLOUT) != 0) {
          send(found->second, {});
        }
        receive(key, (events[static_cast<size_t>(i)].events & EPOLLRDHUP) != 0);
      }
    }
  }
}

void Backend::watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    die("router_backend: epoll_ctl");
  }
}

void Backend::accept_all() {
  int fd = -1;
  while ((fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const uint64_t key = keys_made_++;
    connections_[key].fd = fd;
    counts_.connections += 1;
    watch(fd, key, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  }
}

// A short read means the socket is empty. An `ended` connection is read on until recv() says so.
void Backend::receive(uint64_t key, bool ended) {
  Connection& connection = connections_.at(key);
  ssize_t count = 0;
  do {
    count = recv(connection.fd, buffer_.data(), buffer_.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) {
      close_connection(key);
      return;
    }
    connection.input.append(buffer_.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  } while (count == static_cast<ssize_t>(buffer_.size()) || (ended && count > 0));
  while (connection.events_left == 0 && take_request(key, connection)) {
  }
}

// Returns false until the request is whole. Bodies have a Content-Length: no router here sends
// chunks.
bool Backend::take_request(uint64_t key, Connection& connection) {
  const size_t head_end = connection.input.find("\r\n\r\n");
  if (head_end == std::string::npos) {
    return false;
  }
  const std::string_view all = connection.input;
  const std::string_view head = all.substr(0, head_end + 4);
  constexpr auto kLength = "\ncontent-length:"sv;
  const auto same = [](char a, char b) { return std::tolower(a) == b; };
  const auto* found = std::search(head.begin(), head.end(), kLength.begin(), kLength.end(), same);
  const size_t body_size =
      found == head.end() ? 0
                          : static_cast<size_t>(std::strtol(found + kLength.size(), nullptr, 10));
  if (all.size() < head.size() + body_size) {
    return false;
  }
  if (head.starts_with("GET ")) {
    answer_get(connection, head);
  } else {
    answer_post(key, connection, all.substr(head.size(), body_size));
  }
  connection.input.erase(0, head.size() + body_size);
  return true;
}

void Backend::answer_get(Connection& connection, std::string_view head) {
  if (head.starts_with("GET /stats")) {
    std::array<char, 256> text;
    const int size = std::snprintf(
        text.data(), text.size(),
        R"({"requests":%lu,"prefills":%lu,"fetches":%lu,"bootstraps":%lu,"connections":%lu})",
        counts_.requests, counts_.prefills, counts_.fetches, counts_.bootstraps,
        counts_.connections);
    send_json(connection, {text.data(), static_cast<size_t>(size)});
  } else if (head.starts_with("GET /reset")) {
    counts_ = {};
    send_json(connection, "{}");
  } else if (head.starts_with("GET /v1/models")) {
    send_json(connection, kModels);
  } else {
    const bool asks_info = head.find("_info") != std::string_view::npos;
    send_json(connection, asks_info ? kInfo : "{}");
  }
}

void Backend::answer_post(uint64_t key, Connection& connection, std::string_view body) {
  const auto has = [body](std::string_view text) {
    return memmem(body.data(), body.size(), text.data(), text.size()) != nullptr;
  };
  counts_.requests += 1;
  if (has(R"("do_remote_decode":true)") || has(R"("do_remote_decode": true)")) {
    counts_.prefills += 1;
    send_json(connection, kPrefillAnswer);
    return;
  }
  counts_.fetches += has("remote_request_id") ? 1 : 0;
  counts_.bootstraps += has("bootstrap_room") ? 1 : 0;
  if (!has(R"("stream":true)") && !has(R"("stream": true)")) {
    send_json(connection, kAnswer);
    return;
  }
  const size_t pace = body.find("itl=");
  connection.pace_ns =
      pace == std::string_view::npos ? 0 : 1000L * std::strtol(body.data() + pace + 4, nullptr, 10);
  connection.events_left = kEvents + 1;
  send(connection, kStreamHead);
  send_event(connection);
  if (connection.pace_ns > 0) {
    due_.emplace(now_ns() + connection.pace_ns, key);
    send_due();
  }
  while (connection.pace_ns == 0 && connection.events_left > 0) {
    send_event(connection);
  }
}

void Backend::send_json(Connection& connection, std::string_view body) {
  std::array<char, 2048> reply;
  const int head = std::snprintf(reply.data(), reply.size(),
                                 "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: "
                                 "application/json\r\ncontent-length: %zu\r\n\r\n",
                                 body.size());
  memcpy(reply.data() + head, body.data(), body.size());
  send(connection, {reply.data(), static_cast<size_t>(head) + body.size()});
}

void Backend::send_event(Connection& connection) {
  connection.events_left -= 1;
  send(connection, connection.events_left > 0 ? std::string_view(event_chunk_) : kLastChunks);
}

// Bytes that the socket cannot take now go out when it becomes writable.
void Backend::send(Connection& connection, std::string_view bytes) {
  if (connection.output.empty()) {
    const ssize_t sent = ::send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
  connection.output.append(bytes);
  if (!connection.output.empty()) {
    const ssize_t sent =
        ::send(connection.fd, connection.output.data(), connection.output.size(), MSG_NOSIGNAL);
    connection.output.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
}

void Backend::send_due() {
  uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t bytes = read(timer_, &expirations, sizeof expirations);
  while (!due_.empty() && due_.top().first <= now_ns()) {
    const auto [when, key] = due_.top();
    due_.pop();
    const auto found = connections_.find(key);
    if (found == connections_.end()) {
      continue;
    }
    send_event(found->second);
    if (found->second.events_left > 0) {
      due_.emplace(when + found->second.pace_ns, key);
    }
  }
  if (!due_.empty()) {
    const int64_t left = std::max<int64_t>(due_.top().first - now_ns(), 1);
    const itimerspec next{{}, {left / 1'000'000'000, left % 1'000'000'000}};
    timerfd_settime(timer_, 0, &next, nullptr);
  }
}

void Backend::close_connection(uint64_t key) {
  close(connections_.at(key).fd);
  connections_.erase(key);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("router_backend PORT\n", stderr);
    return 2;
  }
  const auto backend = std::make_unique<Backend>(static_cast<uint16_t>(std::stoi(argv[1])));
  backend->run();
}
