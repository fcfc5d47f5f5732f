// Waits: the transfers that this receiver will fetch once it has rows for them. Their senders keep
// them meanwhile. The receiver sends WAIT once per transfer; RENEW on the same link then keeps them
// alive. A lost link is opened again, because its peer may still live. Loop-bound.
#pragma once

#include <map>
#include <optional>

#include "kvtransfer/link/link.h"
#include "kvtransfer/session/endpoint_context.h"

namespace pdjob::kvtransfer {

// The functions of the receiver that Waits needs.
class WaitLinks {
 public:
  // Returns a link that is open or opening.
  virtual Result<LinkId> link_for_wait(const EndpointAddress& peer) = 0;
  // nullptr: not open.
  virtual Link* find_ready(LinkId id) = 0;

 protected:
  ~WaitLinks() = default;
};

class Waits {
 public:
  Waits(EndpointContext& context, WaitLinks& links) : context_(context), links_(links) {}
  ~Waits();
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  // Beyond the bound it does nothing; the offer then has only its lease.
  void begin(TransferId id, const EndpointAddress& peer, Instant until);
  // The transfer is being fetched: its grant replaces the wait. An unknown id is ignored.
  void fetched(TransferId id);
  // The transfer will not be fetched. An unknown id is ignored.
  void cancel(TransferId id);

  void on_link_ready(Link& link);
  void on_link_lost(LinkId id);
  uint64_t count(LinkId link) const;

 private:
  struct Awaited {
    EndpointAddress peer;
    Instant until;
    LinkId link;  // Empty: lost, or not made.
  };
  using Entry = std::map<TransferId, Awaited>::value_type;

  void say(const Entry& row);
  void look_for_link(Entry& row);
  void retry_later();
  void retry();

  EndpointContext& context_;
  WaitLinks& links_;
  std::map<TransferId, Awaited> waits_;
  std::optional<net::TimerId> retry_;
};

}  // namespace pdjob::kvtransfer
