// The control plane: control messages over a CurveServer (launcher) and CurveClients (workers,
// routers). The launcher makes the keys per job. A process gets them in its spec (process_spec.h),
// never on a command line. Loop-bound.
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "net/control/message.h"
#include "net/loop/event_loop.h"
#include "net/zeromq/curve_channel.h"

namespace pdjob::net {

// The address and the keys that a process uses to reach its launcher.
struct ControlAddress {
  std::string endpoint;           // "tcp://127.0.0.1:41234"
  std::string server_public_key;  // Z85
  CurveKeys client;
  bool empty() const { return endpoint.empty(); }
};

// The launcher's end. Only clients with an allowed public key can connect (ZAP). Each client is
// known by the name given to allow().
class ControlServer {
 public:
  class Handler {
   public:
    virtual void on_message(const std::string& peer, Message message) = 0;

   protected:
    ~Handler() = default;
  };
  struct Options {
    std::string host;
    uint16_t port = 0;
    CurveKeys keys = make_curve_keys();
    // Of the launchers of one run of a job, which one this is. A process that has heard a higher
    // number obeys this one no more.
    uint64_t launcher = 0;
    PortUse use = PortUse::kAlone;  // As in CurveServer::Options.
  };
  static Result<std::unique_ptr<ControlServer>> open(EventLoop& loop, Handler& handler,
                                                     const Options& options);
  virtual ~ControlServer() = default;

  virtual const std::string& endpoint() const = 0;
  virtual const std::string& public_key() const = 0;
  virtual void allow(const std::string& name, const std::string& client_public_key) = 0;
  virtual void forbid(const std::string& name) = 0;
  // Never blocks. A peer that does not read loses messages; missing heartbeats then decide its
  // fate.
  virtual void send(const std::string& peer, const Message& message) = 0;
};

// A worker's or router's end.
class ControlClient {
 public:
  class Handler {
   public:
    virtual void on_message(Message message) = 0;

   protected:
    ~Handler() = default;
  };
  static Result<std::unique_ptr<ControlClient>> open(EventLoop& loop, Handler& handler,
                                                     const ControlAddress& address,
                                                     const std::string& name);
  virtual ~ControlClient() = default;
  virtual void send(const Message& message) = 0;
};

}  // namespace pdjob::net
