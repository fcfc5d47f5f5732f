#include "kvtransfer/session/waits.h"

#include <algorithm>

#include "common/limits.h"

namespace pdjob::kvtransfer {

Waits::~Waits() {
  if (retry_) {
    context_.timers.cancel(*retry_);
  }
}

void Waits::begin(TransferId id, const EndpointAddress& peer, Instant until) {
  if (waits_.size() >= limits::kTransfersMax || waits_.contains(id)) {
    return;
  }
  Entry& row = *waits_.emplace(id, Awaited{.peer = peer, .until = until, .link = {}}).first;
  ++context_.counters.waits_alive;
  look_for_link(row);
}

void Waits::fetched(TransferId id) { context_.counters.waits_alive -= waits_.erase(id); }

void Waits::cancel(TransferId id) {
  if (const auto found = waits_.find(id); found != waits_.end()) {
    if (Link* link = links_.find_ready(found->second.link)) {
      link->send(Cancel{id, {ErrorCode::kCancelled, "the request that waited has ended"}});
    }
    fetched(id);
  }
}

void Waits::on_link_ready(Link& link) {
  for (const Entry& row : waits_) {
    if (row.second.link == link.id()) {
      say(row);
    }
  }
}

void Waits::on_link_lost(LinkId id) {
  for (Entry& row : waits_) {
    if (row.second.link == id) {
      row.second.link = {};
      retry_later();
    }
  }
}

uint64_t Waits::count(LinkId link) const {
  return static_cast<uint64_t>(
      std::ranges::count_if(waits_, [link](const Entry& row) { return row.second.link == link; }));
}

void Waits::say(const Entry& row) {
  if (Link* link = links_.find_ready(row.second.link)) {
    const Duration left = std::clamp<Duration>(row.second.until - context_.timers.exact_now(),
                                               Duration(0), limits::kTransferWaitMax);
    link->send(Wait{.id = row.first,
                    .at_most_ms = static_cast<uint32_t>(
                        std::chrono::duration_cast<std::chrono::milliseconds>(left).count())});
  }
}

void Waits::look_for_link(Entry& row) {
  if (const Result<LinkId> link = links_.link_for_wait(row.second.peer)) {
    row.second.link = *link;
    say(row);
  } else {
    retry_later();
  }
}

// Retries well within the time for which a sender keeps the offers of a lost link.
void Waits::retry_later() {
  if (!retry_) {
    retry_ = context_.timers.call_at(context_.timers.now() + context_.silence_max() / 8, [this] {
      retry_.reset();
      retry();
    });
  }
}

void Waits::retry() {
  const Instant now = context_.timers.exact_now();
  context_.counters.waits_alive -=
      std::erase_if(waits_, [now](const Entry& row) { return row.second.until <= now; });
  for (Entry& row : waits_) {
    if (row.second.link == LinkId{}) {
      look_for_link(row);
    }
  }
}

}  // namespace pdjob::kvtransfer
