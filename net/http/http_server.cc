#include "net/http/http_server.h"

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <unordered_map>

#include <sys/epoll.h>

#include "common/limits.h"
#include "common/os/descriptors.h"
#include "net/http/http_connection.h"
#include "net/http/own_names.h"
#include "net/tls/tls_listener.h"

namespace pdjob::net {
namespace {

constexpr Duration kSweepIntervalMax = std::chrono::seconds(1);
constexpr Duration kSweepIntervalMin = std::chrono::milliseconds(10);
// Waiting connections that are looked at to find one to close.
constexpr int kLooksMax = 64;
// Reads from a connection that is refused.
constexpr int kRefusedReadsMax = 16;

constexpr std::string_view kTooManyConnections =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: "
    "close\r\n\r\n"
    R"({"error":{"message":"too many connections","type":"overloaded_error","param":null,"code":null}})";

class HttpServerOverEpoll final : public HttpServer,
                                  public FdHandler,
                                  public TurnHandler,
                                  public HttpConnection::Owner {
 public:
  HttpServerOverEpoll(Loop& event_loop, HttpHandler& handler, HttpServerOptions options,
                      std::vector<std::unique_ptr<Listener>> listeners);
  HttpServerOverEpoll(const HttpServerOverEpoll&) = delete;
  HttpServerOverEpoll& operator=(const HttpServerOverEpoll&) = delete;
  ~HttpServerOverEpoll() override;
  Status start();

  uint16_t port() const override { return port_; }
  uint16_t own_port() const override { return own_port_; }
  void reply(ExchangeId id, int status, std::string_view content_type, std::string_view body,
             const HttpConnection::Headers& headers) override {
    pass_on(id, &HttpConnection::reply, status, content_type, body, headers);
  }
  void begin(ExchangeId id, int status, std::string_view content_type,
             const HttpConnection::Headers& headers) override {
    pass_on(id, &HttpConnection::begin, status, content_type, headers);
  }
  void write(ExchangeId id, std::string_view bytes, std::string_view extension) override {
    pass_on(id, &HttpConnection::write, bytes, extension);
  }
  void end(ExchangeId id) override { pass_on(id, &HttpConnection::end); }
  void interim(ExchangeId id, std::string_view header_lines) override {
    pass_on(id, &HttpConnection::interim, header_lines);
  }
  void begin_raw(ExchangeId id, std::string_view head) override {
    pass_on(id, &HttpConnection::begin_raw, head);
  }
  void write_raw(ExchangeId id, std::string_view bytes) override {
    pass_on(id, &HttpConnection::write_raw, bytes);
  }
  void end_raw(ExchangeId id, bool keep_alive) override {
    pass_on(id, &HttpConnection::end_raw, keep_alive);
  }
  void abort(ExchangeId id) override { pass_on(id, &HttpConnection::abort); }
  void pause_body(ExchangeId id) override { pass_on(id, &HttpConnection::pause_body); }
  void resume_body(ExchangeId id) override { pass_on(id, &HttpConnection::resume_body); }
  void hold_more(ExchangeId id, size_t bytes) override {
    pass_on(id, &HttpConnection::hold_more, bytes);
  }
  void body_freed(ExchangeId id) override { pass_on(id, &HttpConnection::body_freed); }
  const HeldBytes& held() const override { return held_; }
  bool is_http_1_0(ExchangeId id) const override {
    const HttpConnection* connection = find(id);
    return connection != nullptr && connection->is_http_1_0();
  }
  size_t bytes_queued(ExchangeId id) const override {
    const HttpConnection* connection = find(id);
    return connection == nullptr ? 0 : connection->bytes_queued();
  }
  void start_accepting() override;
  void stop_accepting() override;
  size_t replies_alive() const override;

 private:
  struct Client {
    std::unique_ptr<HttpConnection> connection;
    ExchangeId exchange{};
    uint64_t number = 0;
    std::list<HttpConnection*>::iterator place;  // In waiting_ or busy_.
  };

  Status watch_listeners();
  void on_ready(uint32_t epoll_events) override;  // Called for a listener.
  std::optional<EarlyReply> on_head(HttpRequest& request) override {
    return options_.own_names_only && !is_of_this_machine(request, options_.cors)
               ? refuse_other_names()
               : handler_.on_head(request);
  }
  void on_request(HttpConnection& connection, HttpRequest& request) override;
  void on_body(HttpConnection& connection, std::string_view bytes, BodyPart part) override;
  void on_client_gone(HttpConnection& connection) override;
  void on_writable(HttpConnection& connection) override;
  void on_reply_ended(HttpConnection& connection) override;
  void attend_soon(HttpConnection& connection) override;
  Loop& loop() override { return loop_; }
  const HttpServerOptions& options() const override { return options_; }
  std::span<char> receive_buffer() override { return buffer_; }
  HeldBytes& held_bytes() override { return held_; }

  HttpConnection* find(ExchangeId id) const;
  // Ignores exchanges that have ended.
  template <typename Function, typename... Arguments>
  void pass_on(ExchangeId id, Function function, const Arguments&... arguments) {
    if (HttpConnection* const connection = find(id)) {
      (connection->*function)(arguments...);
    }
  }
  // As they arrived: the order of pointers differs from run to run.
  std::vector<HttpConnection*> in_order() const;
  void accept_from(Listener& listener);
  void accept(std::unique_ptr<Stream> stream);
  bool make_room();
  void on_turn_end() override;
  void sweep();

  Loop& loop_;
  HttpHandler& handler_;
  const HttpServerOptions options_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  const uint16_t port_;
  const uint16_t own_port_;
  HeldBytes held_;              // Must outlive the connections.
  bool accept_failed_ = false;  // Out of descriptors: the sweep retries.
  std::unordered_map<HttpConnection*, Client> clients_;
  std::unordered_map<ExchangeId, HttpConnection*> exchanges_;
  std::list<HttpConnection*> waiting_;  // Without an exchange, the one that waits longest first.
  std::list<HttpConnection*> busy_;
  uint64_t clients_made_ = 0;
  uint64_t exchanges_made_ = 0;
  std::vector<HttpConnection*> attention_;
  std::vector<HttpConnection*> attending_;  // Empty except during on_turn_end().
  TimerId sweep_timer_{};
  std::array<char, 128 * limits::kKiB> buffer_;
};

HttpServerOverEpoll::HttpServerOverEpoll(Loop& event_loop, HttpHandler& handler,
                                         HttpServerOptions options,
                                         std::vector<std::unique_ptr<Listener>> listeners)
    : loop_(event_loop),
      handler_(handler),
      options_(std::move(options)),
      listeners_(std::move(listeners)),
      port_(listeners_.front()->port()),
      own_port_(listeners_.back()->port()),
      held_(options_.held_bytes_max, options_.account_held_bytes_max) {}

HttpServerOverEpoll::~HttpServerOverEpoll() {
  loop_.forget_turn_end(*this);
  loop_.cancel(sweep_timer_);
}

Status HttpServerOverEpoll::start() {
  if (!options_.accepts_later) {
    PDJOB_TRY_STATUS(watch_listeners());
  }
  sweep();
  return ok();
}

Status HttpServerOverEpoll::watch_listeners() {
  for (const auto& listener : listeners_) {
    PDJOB_TRY_STATUS(listener->watch(*this));
  }
  return ok();
}

void HttpServerOverEpoll::start_accepting() {
  const Status watched = watch_listeners();
  PDJOB_CHECK(watched.has_value());
}

// --- connections

void HttpServerOverEpoll::on_ready(uint32_t) {
  accept_failed_ = false;
  for (const auto& listener : listeners_) {
    accept_from(*listener);
  }
}

void HttpServerOverEpoll::accept_from(Listener& listener) {
  while (true) {
    auto stream = listener.accept();
    if (!stream && make_room()) {  // Out of descriptors.
      stream = listener.accept();
    }
    if (!stream || *stream == nullptr) {
      accept_failed_ = accept_failed_ || !stream;
      return;
    }
    accept(std::move(*stream));
  }
}

void HttpServerOverEpoll::accept(std::unique_ptr<Stream> stream) {
  if (clients_.size() >= options_.connections_max && !make_room()) {
    // Reads what has arrived of its request. Otherwise closing would reset the connection, and the
    // reply would be lost.
    for (int reads = 0; reads < kRefusedReadsMax && stream->read(buffer_) > 0; ++reads) {
    }
    stream->write(std::array{kTooManyConnections});
    stream->finish_writing();
    return;
  }
  auto connection = std::make_unique<HttpConnection>(*this, std::move(stream));
  if (connection->watch()) {
    HttpConnection* const key = connection.get();
    clients_[key] = {.connection = std::move(connection),
                     .number = ++clients_made_,
                     .place = waiting_.insert(waiting_.end(), key)};
  }
}

// Closes the connection that has waited longest for a request. One in the middle of its body is
// closed only if no other waits. False: every connection is busy.
bool HttpServerOverEpoll::make_room() {
  HttpConnection* amid_body = nullptr;
  int looks = 0;
  for (auto at = waiting_.begin(); at != waiting_.end() && looks < kLooksMax;) {
    HttpConnection& connection = **at++;  // Its request may come, and move it.
    if (connection.closed()) {
      continue;
    }
    ++looks;
    if (connection.may_be_closed()) {
      connection.evict();
      return true;
    }
    amid_body = amid_body == nullptr && connection.amid_body() ? &connection : amid_body;
  }
  if (amid_body != nullptr) {
    amid_body->evict();
  }
  return amid_body != nullptr;
}

void HttpServerOverEpoll::attend_soon(HttpConnection& connection) {
  if (attention_.empty()) {
    loop_.at_turn_end(*this);
  }
  attention_.push_back(&connection);
}

void HttpServerOverEpoll::on_turn_end() {
  attending_.swap(attention_);
  for (HttpConnection* connection : attending_) {
    connection->attend();
    if (connection->closed()) {
      std::erase(attention_, connection);
      const auto client = clients_.find(connection);
      waiting_.erase(client->second.place);  // Its exchange, if it had one, has ended.
      clients_.erase(client);
    }
  }
  attending_.clear();
}

std::vector<HttpConnection*> HttpServerOverEpoll::in_order() const {
  std::vector<std::pair<uint64_t, HttpConnection*>> numbered;
  numbered.reserve(clients_.size());
  for (const auto& [connection, client] : clients_) {
    numbered.emplace_back(client.number, connection);
  }
  std::ranges::sort(numbered);
  std::vector<HttpConnection*> connections;
  connections.reserve(numbered.size());
  for (const auto& [number, connection] : numbered) {
    connections.push_back(connection);
  }
  return connections;
}

void HttpServerOverEpoll::sweep() {
  for (HttpConnection* const connection : in_order()) {
    connection->check_deadline(loop_.now());
  }
  if (accept_failed_) {
    on_ready(EPOLLIN);
  }
  const Duration shortest = std::min(options_.idle_timeout, options_.request_timeout);
  const Duration interval = std::clamp(shortest / 4, kSweepIntervalMin, kSweepIntervalMax);
  sweep_timer_ = loop_.call_at(loop_.now() + interval, [this] { sweep(); });
}

size_t HttpServerOverEpoll::replies_alive() const {
  return static_cast<size_t>(std::ranges::count_if(clients_, [this](const auto& each) {
    return exchanges_.contains(each.second.exchange) || each.first->bytes_queued() > 0;
  }));
}

void HttpServerOverEpoll::stop_accepting() {
  listeners_.clear();
  for (HttpConnection* const connection : in_order()) {
    connection->drain();
  }
}

// --- exchanges

void HttpServerOverEpoll::on_request(HttpConnection& connection, HttpRequest& request) {
  const ExchangeId id{++exchanges_made_};
  Client& client = clients_.at(&connection);
  client.exchange = id;
  busy_.splice(busy_.end(), waiting_, client.place);
  exchanges_.emplace(id, &connection);
  handler_.on_request(id, request);
}

void HttpServerOverEpoll::on_body(HttpConnection& connection, std::string_view bytes,
                                  BodyPart part) {
  handler_.on_body(clients_.at(&connection).exchange, bytes, part);
}

void HttpServerOverEpoll::on_client_gone(HttpConnection& connection) {
  const Client& client = clients_.at(&connection);
  const ExchangeId id = client.exchange;
  waiting_.splice(waiting_.end(), busy_, client.place);
  exchanges_.erase(id);
  handler_.on_client_gone(id);
}

void HttpServerOverEpoll::on_writable(HttpConnection& connection) {
  handler_.on_writable(clients_.at(&connection).exchange);
}

void HttpServerOverEpoll::on_reply_ended(HttpConnection& connection) {
  const Client& client = clients_.at(&connection);
  waiting_.splice(waiting_.end(), busy_, client.place);
  exchanges_.erase(client.exchange);
}

HttpConnection* HttpServerOverEpoll::find(ExchangeId id) const {
  const auto found = exchanges_.find(id);
  return found == exchanges_.end() ? nullptr : found->second;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(Loop& loop, HttpHandler& handler,
                                                     const HttpServerOptions& options) {
  HttpServerOptions filled = options;
  if (filled.body_bytes_max == 0) {
    filled.body_bytes_max = limits::kHttpBodyBytesMax;
  }
  if (filled.connections_max == 0) {
    filled.connections_max = connections_within(descriptor_limit(), limits::kHttpConnectionsMax);
  }
  if (filled.held_bytes_max == 0) {
    filled.held_bytes_max = limits::kHttpHeldBytesMax;
  }
  if (filled.account_held_bytes_max == 0) {
    filled.account_held_bytes_max = filled.held_bytes_max / 4;
  }
  std::vector<std::unique_ptr<Listener>> listeners(1);
  PDJOB_TRY(listeners.front(),
            loop.listen({.host = options.host,
                         .port = options.port,
                         .use = options.shares_port ? PortUse::kShared : PortUse::kAlone,
                         .fd = options.listen_fd}));
  if (options.tls != nullptr) {
    const size_t clients = connections_within(descriptor_limit(), limits::kHttpConnectionsMax);
    listeners.front() = std::make_unique<TlsListener>(
        loop, std::move(listeners.front()), *options.tls,
        TlsListener::Options{.handshakes_max = std::min(kTlsHandshakesMax, clients / 2 + 1)});
  }
  if (options.own_port) {
    PDJOB_TRY(listeners.emplace_back(), loop.listen({}));
  }
  auto server =
      std::make_unique<HttpServerOverEpoll>(loop, handler, std::move(filled), std::move(listeners));
  PDJOB_TRY_STATUS(server->start());
  return Result<std::unique_ptr<HttpServer>>(std::move(server));
}

}  // namespace pdjob::net
