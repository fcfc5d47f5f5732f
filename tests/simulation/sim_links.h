// The KV links between simulated workers: their two ends and their messages. Messages arrive late
// but in order. When a process has died, the other end learns that the link is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/id.h"
#include "kvtransfer/session/transfer_session.h"
#include "tests/simulation/sim_loop.h"

namespace pdjob::simulation {

class SimWorker;
class SimWorld;

// One life of one worker process. Its id is never reused.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;

using kvtransfer::LinkId;

struct SimLink {
  Incarnation sender;
  Incarnation receiver;
  SimChannel to_sender;
  SimChannel to_receiver;
};

class SimLinks {
 public:
  using Message = std::function<void(SimWorker&)>;

  explicit SimLinks(SimWorld& world) : world_(world) {}

  LinkId open(Incarnation sender, Incarnation receiver);
  // Returns the receiver of an open link; otherwise an empty incarnation.
  Incarnation receiver(LinkId id) const;
  // These drop messages on a link that one end has closed.
  void to_sender(LinkId id, Message message);
  void to_receiver(LinkId id, Message message);
  // One end closes the link and forgets it. The other end learns it.
  void close_at_sender(LinkId id);
  void close_at_receiver(LinkId id);
  // The receiver gives the link up. The sender learns that it closed, and answers by closing.
  void give_up_at_receiver(LinkId id);
  void process_died(Incarnation incarnation);

  std::vector<LinkId> all() const;

 private:
  SimWorld& world_;
  std::map<LinkId, SimLink> links_;
  uint64_t links_made_ = 0;
};

}  // namespace pdjob::simulation
