#include "net/http/http_client.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include "common/limits.h"
#include "net/http/client_connection.h"
#include "net/http/reply_head.h"
#include "net/loop/free_text.h"
#include "net/loop/resolver.h"
#include "net/loop/socket.h"

namespace pdjob::net {
namespace {

constexpr Duration kSweepInterval = std::chrono::milliseconds(50);
// Below the idle timeout of our own servers, so that mostly the client closes.
constexpr Duration kIdleMax = std::chrono::seconds(60);

// A body up to this size is sent together with the head: one piece costs less than two.
constexpr size_t kShortBody = 16 * limits::kKiB;

enum class Awaited { kConnection, kHead, kBody };

const char* to_string(Awaited awaited) {
  switch (awaited) {
    case Awaited::kConnection:
      return "connection to ";
    case Awaited::kHead:
      return "reply of ";
    case Awaited::kBody:
      break;
  }
  return "rest of the reply of ";
}

struct Call {
  HttpCallHandler& handler;
  HttpAddress to;
  std::string head;  // Includes a short body.
  std::string body;
  bool is_head = false;
  bool streams = false;
  bool writable = false;     // The head of such a call has been sent.
  std::string early;         // Bytes of its body that came before that.
  bool early_ended = false;  // They are all of the body.
  Duration connect_timeout;
  Duration head_timeout;
  Duration idle_timeout;

  Instant end = kNever;  // End of total_timeout.

  Awaited awaited = Awaited::kConnection;
  Instant deadline = kNever;
  bool paused = false;
  ClientConnection* connection = nullptr;
  std::vector<SocketAddress> addresses;  // Still to try.
  bool replaceable = false;              // On a pooled connection, which may be dead already.
  bool reached = false;                  // Bytes of it were sent on a connection that broke.
};

class HttpClientOverEpoll final : public HttpClient,
                                  public TurnHandler,
                                  public ClientConnection::Owner {
 public:
  explicit HttpClientOverEpoll(Loop& loop) : loop_(loop), resolver_(loop.make_resolver()) {}
  ~HttpClientOverEpoll() override;

  CallId start(HttpCall call, HttpCallHandler& handler) override;
  size_t send_body(CallId id, std::string_view bytes) override;
  void end_body(CallId id) override;
  void cancel(CallId id) override;
  void pause(CallId id) override;
  void resume(CallId id) override;
  bool reached() const override { return reached_; }
  void forget(const HttpAddress& address) override;
  void end_reconnecting(const HttpAddress& address) override;

 private:
  struct Connection {
    std::unique_ptr<ClientConnection> socket;
    HttpAddress address;
    CallId call{};
    Instant idle_since{};
    uint64_t number = 0;
  };

  void on_connected(ClientConnection& connection) override;
  void on_writable(ClientConnection& connection) override;
  void on_interim(ClientConnection& connection, const HttpReplyHead& head) override;
  void on_head(ClientConnection& connection, const HttpReplyHead& head) override;
  void on_body(ClientConnection& connection, std::string_view raw) override;
  void on_end(ClientConnection& connection) override;
  void on_failed(ClientConnection& connection, const Error& error) override;
  void attend_soon(ClientConnection& connection) override;
  Loop& loop() override { return loop_; }
  std::span<char> receive_buffer() override { return buffer_; }

  Call& call_of(ClientConnection& connection);
  Call* find(CallId id);
  bool start_pooled(CallId id, Call& call);
  void connect(CallId id, Call& call);
  void on_resolved(const HttpAddress& address, const Resolver::Addresses& addresses);
  Status connect_next(CallId id, Call& call, Error error = {});
  void wait(Call& call, Duration timeout) const {
    call.deadline = std::min(loop_.now() + timeout, call.end);
  }
  void attach(CallId id, Call& call, ClientConnection& connection);
  void fail(CallId id, const Error& error);
  void cut(CallId id, const Error& error);
  void fail_soon(CallId id, Error error);
  void remove_idle(ClientConnection& connection);
  void turn_soon();
  void on_turn_end() override;
  void sweep();

  Loop& loop_;
  const std::unique_ptr<Resolver> resolver_;
  std::unordered_map<CallId, Call> calls_;
  uint64_t calls_made_ = 0;
  std::unordered_map<ClientConnection*, Connection> connections_;
  uint64_t connections_made_ = 0;
  std::map<HttpAddress, std::vector<ClientConnection*>> idle_;  // The last one is the warmest.
  std::map<HttpAddress, std::vector<SocketAddress>> resolved_;
  std::map<HttpAddress, std::vector<CallId>> resolving_;
  std::vector<std::pair<CallId, Error>> failures_;  // Found inside start(), reported later.
  std::vector<ClientConnection*> attention_;
  std::vector<ClientConnection*> attending_;  // Empty except during on_turn_end().
  bool reached_ = false;                      // Returned by reached().
  bool turn_asked_ = false;
  TimerId sweep_timer_{};
  std::array<char, 128 * limits::kKiB> buffer_;
};

HttpClientOverEpoll::~HttpClientOverEpoll() {
  loop_.forget_turn_end(*this);
  loop_.cancel(sweep_timer_);
}

std::string request_head(const HttpCall& call) {
  constexpr size_t kFixedParts = 96;
  std::string head;
  head.reserve(kFixedParts + call.method.size() + call.target.size() + call.to.host.size() +
               call.header_lines.size() + call.more_header_lines.size() +
               (call.body.size() > kShortBody ? 0 : call.body.size()));
  head.append(call.method).append(" ").append(call.target).append(" HTTP/1.1\r\nHost: ");
  head.append(call.to.to_string());
  head.append("\r\n").append(call.header_lines).append(call.more_header_lines);
  if (!call.streams && (!call.body.empty() || (call.method != "GET" && call.method != "HEAD"))) {
    head.append("Content-Length: ");
    append_number(head, call.body.size());
    head.append("\r\n");
  }
  head.append("\r\n");
  return head;
}

// --- calls

CallId HttpClientOverEpoll::start(HttpCall call, HttpCallHandler& handler) {
  const CallId id{++calls_made_};
  std::string head = request_head(call);
  if (call.body.size() <= kShortBody) {
    head.append(call.body);
    call.body.clear();
  }
  Call& started = calls_
                      .emplace(id, Call{.handler = handler,
                                        .to = std::move(call.to),
                                        .head = std::move(head),
                                        .body = std::move(call.body),
                                        .is_head = call.method == "HEAD",
                                        .streams = call.streams,
                                        .connect_timeout = call.connect_timeout,
                                        .head_timeout = call.head_timeout,
                                        .idle_timeout = call.idle_timeout,
                                        .end = call.total_timeout == Duration::max()
                                                   ? kNever
                                                   : loop_.now() + call.total_timeout})
                      .first->second;
  if (started.streams || !start_pooled(id, started)) {
    connect(id, started);
  }
  if (sweep_timer_ == TimerId{}) {
    sweep_timer_ = loop_.call_at(loop_.now() + kSweepInterval, [this] { sweep(); });
  }
  return id;
}

bool HttpClientOverEpoll::start_pooled(CallId id, Call& call) {
  const auto pool = idle_.find(call.to);
  if (pool == idle_.end() || pool->second.empty()) {
    return false;
  }
  ClientConnection& connection = *pool->second.back();
  pool->second.pop_back();
  call.replaceable = true;
  attach(id, call, connection);
  return true;
}

// Uses a fresh connection.
void HttpClientOverEpoll::connect(CallId id, Call& call) {
  call.replaceable = false;
  call.awaited = Awaited::kConnection;
  wait(call, call.connect_timeout);
  auto known = resolved_.find(call.to);
  if (known == resolved_.end()) {
    if (auto numeric = resolve(call.to.host, call.to.port, HostForm::kNumeric)) {
      known = resolved_.emplace(call.to, std::move(*numeric)).first;
    }
  }
  if (known != resolved_.end()) {
    call.addresses = known->second;
    if (const Status connects = connect_next(id, call); !connects) {
      fail_soon(id, connects.error());
    }
    return;
  }
  std::vector<CallId>& waiting = resolving_[call.to];
  waiting.push_back(id);
  if (waiting.size() == 1) {
    resolver_->look_up(
        call.to.host, call.to.port,
        [this, to = call.to](const Resolver::Addresses& found) { on_resolved(to, found); });
  }
}

void HttpClientOverEpoll::on_resolved(const HttpAddress& address,
                                      const Resolver::Addresses& addresses) {
  const auto waiting = resolving_.extract(address);
  if (addresses) {
    resolved_[address] = *addresses;
  }
  for (const CallId id : waiting.mapped()) {
    Call* call = find(id);
    if (call == nullptr) {
      continue;
    }
    if (!addresses) {
      fail(id, addresses.error());
      continue;
    }
    call->addresses = *addresses;
    if (const Status connects = connect_next(id, *call); !connects) {
      fail(id, connects.error());
    }
  }
}

// Tries the call's addresses in turn. When none is left, returns why the last one failed; `error`
// is that reason if it is already known.
Status HttpClientOverEpoll::connect_next(CallId id, Call& call, Error error) {
  while (!call.addresses.empty()) {
    const SocketAddress address = call.addresses.front();
    call.addresses.erase(call.addresses.begin());
    auto stream = loop_.connect(address);
    if (!stream) {
      error = stream.error();
      continue;
    }
    auto connection = std::make_unique<ClientConnection>(*this, std::move(*stream));
    if (!connection->watch()) {
      error = {ErrorCode::kUnavailable, "out of descriptors"};
      continue;
    }
    ClientConnection* const socket = connection.get();
    connections_[socket] = {
        .socket = std::move(connection), .address = call.to, .number = ++connections_made_};
    attach(id, call, *socket);
    return ok();
  }
  // The name may have another address by now.
  resolved_.erase(call.to);
  return error.during("connecting to " + call.to.to_string());
}

void HttpClientOverEpoll::attach(CallId id, Call& call, ClientConnection& connection) {
  connections_.at(&connection).call = id;
  call.connection = &connection;
  if (!connection.connecting()) {
    on_connected(connection);
  }
  connection.start(
      {.head = call.head, .body = call.body, .is_head = call.is_head, .streams = call.streams});
}

size_t HttpClientOverEpoll::send_body(CallId id, std::string_view bytes) {
  Call* const call = find(id);
  if (call == nullptr) {
    return 0;
  }
  if (!call->writable) {
    call->early.append(bytes);
    return call->early.size();
  }
  if (call->awaited == Awaited::kHead) {
    wait(*call, call->idle_timeout);
  }
  return call->connection->send_body(bytes);
}

void HttpClientOverEpoll::end_body(CallId id) {
  Call* const call = find(id);
  if (call == nullptr) {
    return;
  }
  if (!call->writable) {
    call->early_ended = true;
    return;
  }
  call->connection->end_body();
  if (call->awaited == Awaited::kHead) {
    wait(*call, call->head_timeout);
  }
}

void HttpClientOverEpoll::cancel(CallId id) {
  if (auto call = calls_.extract(id)) {
    if (ClientConnection* connection = call.mapped().connection) {
      connection->close();
    }
  }
}

void HttpClientOverEpoll::pause(CallId id) {
  Call* call = find(id);
  if (call != nullptr && call->connection != nullptr) {
    call->paused = true;
    call->deadline = call->end;
    call->connection->pause();
  }
}

void HttpClientOverEpoll::resume(CallId id) {
  Call* call = find(id);
  if (call != nullptr && call->connection != nullptr) {
    call->paused = false;
    wait(*call, call->idle_timeout);
    call->connection->resume();
  }
}

void HttpClientOverEpoll::forget(const HttpAddress& address) {
  resolved_.erase(address);
  if (const auto pool = idle_.extract(address)) {
    for (ClientConnection* connection : pool.mapped()) {
      connection->close();
    }
  }
}

void HttpClientOverEpoll::end_reconnecting(const HttpAddress& address) {
  std::vector<CallId> reconnecting;
  for (const auto& [id, call] : calls_) {
    if (call.to == address && call.reached && call.awaited == Awaited::kConnection) {
      reconnecting.push_back(id);
    }
  }
  std::ranges::sort(reconnecting);
  for (const CallId id : reconnecting) {
    cut(id, {ErrorCode::kUnavailable, address.to_string() + " is gone"});
  }
}

Call* HttpClientOverEpoll::find(CallId id) {
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : &found->second;
}

void HttpClientOverEpoll::fail(CallId id, const Error& error) {
  if (auto call = calls_.extract(id)) {
    reached_ = call.mapped().reached;
    call.mapped().handler.on_error(id, error);
  }
}

// Ends a call that its connection would go on with. Ignores calls that have ended.
void HttpClientOverEpoll::cut(CallId id, const Error& error) {
  Call* const call = find(id);
  if (call != nullptr && call->connection != nullptr) {
    call->reached = call->reached || !call->connection->nothing_sent();
    call->connection->close();
  }
  fail(id, error);
}

void HttpClientOverEpoll::fail_soon(CallId id, Error error) {
  failures_.emplace_back(id, std::move(error));
  turn_soon();
}

// --- connections

Call& HttpClientOverEpoll::call_of(ClientConnection& connection) {
  return calls_.at(connections_.at(&connection).call);
}

void HttpClientOverEpoll::on_connected(ClientConnection& connection) {
  Call& call = call_of(connection);
  call.awaited = Awaited::kHead;
  wait(call, call.head_timeout);
}

void HttpClientOverEpoll::on_writable(ClientConnection& connection) {
  const CallId id = connections_.at(&connection).call;
  Call& call = call_of(connection);
  if (call.awaited == Awaited::kHead) {
    wait(call, call.idle_timeout);
  }
  if (!std::exchange(call.writable, true)) {
    const bool waits = connection.send_body(std::exchange(call.early, {})) > 0;
    if (call.early_ended) {
      end_body(id);
      return;
    }
    if (waits) {
      return;  // It comes again.
    }
  }
  call.handler.on_writable(id);
}

void HttpClientOverEpoll::on_interim(ClientConnection& connection, const HttpReplyHead& head) {
  call_of(connection).handler.on_interim(connections_.at(&connection).call, head);
}

void HttpClientOverEpoll::on_head(ClientConnection& connection, const HttpReplyHead& head) {
  const CallId id = connections_.at(&connection).call;
  Call& call = call_of(connection);
  call.awaited = Awaited::kBody;
  wait(call, call.idle_timeout);
  if (connection.request_sent()) {
    free_text(call.body);  // A long prompt is not needed while its reply streams.
  }
  call.handler.on_head(id, head);
}

void HttpClientOverEpoll::on_body(ClientConnection& connection, std::string_view raw) {
  const CallId id = connections_.at(&connection).call;
  Call& call = call_of(connection);
  if (!call.paused) {
    wait(call, call.idle_timeout);
  }
  call.handler.on_body(id, raw);
}

void HttpClientOverEpoll::on_end(ClientConnection& connection) {
  Connection& ended = connections_.at(&connection);
  const CallId id = std::exchange(ended.call, {});
  if (connection.idle()) {
    auto& pool = idle_[ended.address];
    ended.idle_since = loop_.now();
    pool.push_back(&connection);
    if (pool.size() > limits::kHttpIdleConnectionsMax) {
      ClientConnection& coldest = *pool.front();
      remove_idle(coldest);
      coldest.close();
    }
  }
  const auto call = calls_.extract(id);
  call.mapped().handler.on_end(id);
}

void HttpClientOverEpoll::on_failed(ClientConnection& connection, const Error& error) {
  Connection& failed = connections_.at(&connection);
  const CallId id = std::exchange(failed.call, {});
  Call* call = find(id);
  if (call == nullptr) {
    remove_idle(connection);
    return;
  }
  call->connection = nullptr;
  call->reached = call->reached || !connection.nothing_sent();
  // If the other end died, the idle connections are dead, too, although their ends may come later.
  // A call on one of them would look as if it had reached that process.
  forget(failed.address);
  if (call->replaceable && !connection.reply_started()) {
    connect(id, *call);
  } else if (call->awaited == Awaited::kConnection) {
    if (const Status connects = connect_next(id, *call, error); !connects) {
      fail(id, connects.error());
    }
  } else {
    fail(id, error.during("calling " + call->to.to_string()));
  }
}

void HttpClientOverEpoll::remove_idle(ClientConnection& connection) {
  const auto pool = idle_.find(connections_.at(&connection).address);
  if (pool != idle_.end()) {
    std::erase(pool->second, &connection);
  }
}

// --- turns

void HttpClientOverEpoll::attend_soon(ClientConnection& connection) {
  attention_.push_back(&connection);
  turn_soon();
}

void HttpClientOverEpoll::turn_soon() {
  if (!std::exchange(turn_asked_, true)) {
    loop_.at_turn_end(*this);
  }
}

void HttpClientOverEpoll::on_turn_end() {
  turn_asked_ = false;
  for (const auto& [id, error] : std::exchange(failures_, {})) {
    fail(id, error);
  }
  attending_.swap(attention_);
  for (ClientConnection* connection : attending_) {
    connection->attend();
    if (connection->closed()) {
      std::erase(attention_, connection);
      connections_.erase(connection);
    }
  }
  attending_.clear();
}

void HttpClientOverEpoll::sweep() {
  sweep_timer_ = {};
  std::vector<CallId> late;
  for (const auto& [id, call] : calls_) {
    if (call.deadline <= loop_.now()) {
      late.push_back(id);
    }
  }
  std::ranges::sort(late);
  for (const CallId id : late) {
    if (const Call* const call = find(id)) {
      cut(id, {ErrorCode::kTimeout, std::string("timeout while waiting for the ") +
                                        to_string(call->awaited) + call->to.to_string()});
    }
  }
  // In the order in which they were made: that of pointers differs from run to run.
  std::map<uint64_t, ClientConnection*> too_long_idle;
  for (const auto& [socket, connection] : connections_) {
    if (socket->idle() && connection.idle_since + kIdleMax <= loop_.now()) {
      too_long_idle.emplace(connection.number, socket);
    }
  }
  for (const auto& [number, socket] : too_long_idle) {
    remove_idle(*socket);
    socket->close();
  }
  std::erase_if(idle_, [](const auto& pool) { return pool.second.empty(); });
  if (sweep_timer_ == TimerId{} && !(calls_.empty() && connections_.empty())) {
    sweep_timer_ = loop_.call_at(loop_.now() + kSweepInterval, [this] { sweep(); });
  }
}

}  // namespace

std::unique_ptr<HttpClient> HttpClient::create(Loop& loop) {
  return std::make_unique<HttpClientOverEpoll>(loop);
}

}  // namespace pdjob::net
