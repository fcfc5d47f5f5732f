// OutboundClient: HTTP and HTTPS calls to the world outside the job, such as callbacks, traces and
// embeddings. By libcurl on the event loop, which resolves names in threads of its own. It
// ignores redirects, and proxies of the environment. Calls between the job's own
// processes go through HttpClient. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "net/loop/event_loop.h"
#include "net/outbound/ip_network.h"
#include "net/outbound/url.h"

namespace pdjob::net {

// Whether an https server has to prove that it is the named one.
enum class Peer {
  kProved,
  kOfThisMachine,  // No: nobody else can be at its address, which is of this machine.
};

struct OutboundCall {
  Url to;
  std::vector<std::string> headers;  // "Name: value", without line ends.
  std::string body;                  // POSTed.
  Duration connect_timeout = std::chrono::seconds(2);
  Duration timeout = std::chrono::seconds(10);  // Of the whole call.
  Peer peer = Peer::kProved;
  size_t reply_bytes_max = size_t{64} * 1024;
  // Asked about the address that is about to be connected to, after the name was resolved. Empty:
  // any may be.
  std::function<bool(const IpAddress&)> may_connect;
};

struct OutboundReply {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool complete = true;  // False: it broke off, took too long or was too long.
  // Why it is not complete. kTimeout, kPeerFailed: it broke off, kUnsupported: it was too long.
  Error fault;

  // Whatever the case of its name; empty: there is none.
  std::string_view header(std::string_view name) const;
};

using OutboundId = StrongId<struct OutboundTag, uint64_t>;

class OutboundClient {
 public:
  // No reply came. kUnavailable: nothing was sent, for example because may_connect refused every
  // address. kUnsupported: nothing was sent, because the server's certificate is not trusted.
  // kPeerFailed: the connection broke. kTimeout.
  using Then = std::function<void(Result<OutboundReply>)>;

  // `ca_file`: certificates of the authorities that are trusted; empty: the system's.
  static std::unique_ptr<OutboundClient> create(EventLoop& loop, const std::string& ca_file);
  virtual ~OutboundClient() = default;  // Ends running calls without calling `then`.

  // Calls `then` once, after it has returned.
  virtual OutboundId post(OutboundCall call, Then then) = 0;
  // Ends the call without calling `then`. Calls that have ended are ignored.
  virtual void cancel(OutboundId id) = 0;
};

// Makes the clients of one loop; `ca_file` as above.
using MakeOutboundClient =
    std::function<std::unique_ptr<OutboundClient>(const std::string& ca_file)>;
inline MakeOutboundClient outbound_clients(EventLoop& loop) {
  return [&loop](const std::string& ca_file) { return OutboundClient::create(loop, ca_file); };
}

}  // namespace pdjob::net
