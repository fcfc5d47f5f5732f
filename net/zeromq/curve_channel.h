// CurveServer and CurveClient: messages of bytes between one server and many clients over ZeroMQ
// (ROUTER and DEALER) with CURVE. Both ends prove that they have their secret key; nothing is sent
// to an end that does not. They know no message. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

struct CurveKeys {
  std::string public_key;  // Z85
  std::string secret_key;  // Z85
};
CurveKeys make_curve_keys();
// The same 64 hexadecimal digits give the same keys.
CurveKeys curve_keys_of(const std::string& secret);

enum class CurveSent { kQueued, kFull, kGone };

// Only clients with an allowed public key can connect (ZAP).
class CurveServer {
 public:
  class Handler {
   public:
    // `key` is the client's public key. `route` names the connection: a client that comes back has
    // another one.
    virtual void on_bytes(const std::string& key, const std::string& route,
                          const std::string& bytes) = 0;
    // A client did not prove itself. Called at most once a minute; `times` counts what was not
    // told.
    virtual void on_refused(const std::string& why, uint64_t times) = 0;
    // Some connection ended. send() to its route is kGone, soon if not now.
    virtual void on_disconnected() {}

   protected:
    ~Handler() = default;
  };
  struct Options {
    std::string host;  // Numeric.
    uint16_t port = 0;
    CurveKeys keys;
    std::function<bool(const std::string& key)> allows;
    Duration linger{};              // How long the last messages may still leave after the end.
    PortUse use = PortUse::kAlone;  // kShared: others of this user may hold the port, too.
  };
  static Result<std::unique_ptr<CurveServer>> open(EventLoop& loop, Handler& handler,
                                                   Options options);
  virtual ~CurveServer() = default;

  virtual const std::string& endpoint() const = 0;
  // Never blocks.
  virtual CurveSent send(const std::string& route, const std::string& bytes) = 0;
};

class CurveClient {
 public:
  class Handler {
   public:
    virtual void on_bytes(const std::string& bytes) = 0;
    // The server has proved itself, and so have we.
    virtual void on_connected() {}
    virtual void on_disconnected() {}
    // The proof failed on one of both ends. Called at most once a minute.
    virtual void on_refused() {}

   protected:
    ~Handler() = default;
  };
  struct Options {
    std::string endpoint;           // "tcp://127.0.0.1:41234"
    std::string server_public_key;  // Z85
    CurveKeys keys;
    // kWait: messages wait for a connection. kOnlyConnected: send() without one is kFull, and what
    // waits is dropped when the connection ends.
    enum class Queue { kWait, kOnlyConnected } queue = Queue::kWait;
    Duration linger{};
  };
  static Result<std::unique_ptr<CurveClient>> open(EventLoop& loop, Handler& handler,
                                                   const Options& options);
  virtual ~CurveClient() = default;
  // Never blocks.
  virtual CurveSent send(const std::string& bytes) = 0;
};

// The port of "tcp://HOST:PORT".
uint16_t port_of(const std::string& endpoint);

// "tcp://HOST:PORT", with brackets around an IPv6 address.
std::string tcp_endpoint(const std::string& host, const std::string& port);

}  // namespace pdjob::net
