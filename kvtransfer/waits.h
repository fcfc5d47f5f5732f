// Waits: the transfers that this receiver will fetch once it has rows for them. Their senders keep
// them meanwhile: WAIT says so once on a link to each, RENEW of that link does the rest. A link
// that is lost is made again, for its peer may live. Loop-bound.
#pragma once

#include <map>
#include <optional>

#include "kvtransfer/endpoint_context.h"
#include "kvtransfer/link.h"

namespace pdjob::kvtransfer {

// What it needs of the receiver.
class WaitLinks {
 public:
  // A link that is open or opening.
  virtual Result<LinkId> link_for_wait(const EndpointAddress& peer) = 0;
  // Nobody: not open.
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

  // Beyond the bound it does nothing: the offer then has its lease.
  void begin(TransferId id, const EndpointAddress& peer, Instant until);
  // It is being fetched: what the grant says is enough. Unknown: nothing happens.
  void fetched(TransferId id);
  // It will not be fetched. Unknown: nothing happens.
  void cancel(TransferId id);

  void on_link_ready(Link& link);
  void on_link_lost(LinkId id);
  uint64_t count(LinkId link) const;

 private:
  struct Awaited {
    EndpointAddress peer;
    Instant until;
    LinkId link;  // None: lost, or not made.
  };
  using Row = std::map<TransferId, Awaited>::value_type;

  void say(const Row& row);
  void look_for_link(Row& row);
  void retry_later();
  void retry();

  EndpointContext& context_;
  WaitLinks& links_;
  std::map<TransferId, Awaited> waits_;
  std::optional<net::TimerId> retry_;
};

}  // namespace pdjob::kvtransfer
