// MembersWatch publishes the members to clients that balance over routers, or talk to workers, by
// themselves. A client fetches the list once (JSON) or subscribes to it (server-sent events). A
// subscriber gets the whole list at once and after every change, so a missed event costs nothing.
//
//     {"version":3,"routers":[{"name":"router-0","url":"http://..."}],
//      "workers":[{"name":"decode-0","role":"decode","url":"http://...","model":"m"}]}
//
// Loop-bound.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "net/control/message.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"

namespace pdjob::router {

struct Members {
  std::vector<net::WorkerEntry> routers;
  std::vector<net::WorkerEntry> workers;
  friend bool operator==(const Members&, const Members&) = default;
};

class MembersWatch {
 public:
  static constexpr size_t kSubscribersMax = 1024;
  // Keeps connections alive: middleboxes drop idle ones.
  static constexpr Duration kPingInterval = std::chrono::seconds(15);

  MembersWatch(net::Loop& loop, net::HttpServer& server);
  ~MembersWatch() { loop_.cancel(timer_); }
  MembersWatch(const MembersWatch&) = delete;
  MembersWatch& operator=(const MembersWatch&) = delete;

  // Answers GET /pdjob/members, with a subscription if the client accepts text/event-stream.
  void reply(net::ExchangeId id, const net::HttpRequest& request);
  void client_left(net::ExchangeId id) { subscribers_.erase(id); }

  void publish(Members members);
  // Ends all subscriptions and refuses new ones.
  void close();

 private:
  void subscribe(net::ExchangeId id, bool head_only);
  void tell_all(const std::string& text);
  void ping();

  net::Loop& loop_;
  net::HttpServer& server_;
  Members members_;
  uint64_t version_ = 0;  // Counts the changes that this router saw.
  std::string json_;      // The members, as JSON.
  std::set<net::ExchangeId> subscribers_;
  bool closed_ = false;
  net::TimerId timer_;
};

}  // namespace pdjob::router
