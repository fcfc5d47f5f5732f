// OrderDesk: the orders of trainers that wait for the launcher's answer. Messages may be lost, so
// it repeats each order until the answer comes. The launcher carries out a repeated order once.
// Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "common/time.h"
#include "net/control/message.h"
#include "net/loop/loop.h"

namespace pdjob::router {

class OrderDesk {
 public:
  using Done = std::function<void(const net::OrderAnswered&)>;
  // `send` gives an order to the launcher. An order without an answer for `patience` is answered
  // with 504. The loop must outlive it.
  OrderDesk(net::Loop& loop, std::function<void(const net::OrderAsked&)> send, Duration patience);
  ~OrderDesk();
  OrderDesk(const OrderDesk&) = delete;
  OrderDesk& operator=(const OrderDesk&) = delete;

  // Calls `done` once, now or later. The order's id is chosen here.
  void ask(net::OrderAsked order, Done done);
  // The launcher's answer. Unknown ones are ignored.
  void take(const net::OrderAnswered& answer);

 private:
  struct Waiting {
    net::OrderAsked order;
    Done done;
    Instant deadline{};
  };

  void repeat();

  net::Loop& loop_;
  const std::function<void(const net::OrderAsked&)> send_;
  const Duration patience_;
  std::map<uint64_t, Waiting> waiting_;  // By id.
  net::TimerId timer_;
  bool repeats_ = false;
};

}  // namespace pdjob::router
