// Receiver: the fetching half of an endpoint. It opens and keeps one link per (peer, transport,
// stream), grants rows, and checks what arrives. ReceiveSession makes the decisions. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvtransfer/link/link.h"
#include "kvtransfer/session/endpoint_context.h"
#include "kvtransfer/session/transfer_session.h"
#include "kvtransfer/session/waits.h"

namespace pdjob::kvtransfer {

// The maximum number of messages about blocks that wait for a link to open.
inline constexpr size_t kNewsOfLinkMax = 64;

class Receiver final : private LinkHandler, private WaitLinks {
 public:
  explicit Receiver(EndpointContext& context);
  ~Receiver();

  void await(TransferId id, const EndpointAddress& peer, Instant until);
  void fetch(TransferId id, const EndpointAddress& peer, Region target, uint32_t rows,
             Instant deadline);
  void cancel(TransferId id);
  void tell(const EndpointAddress& peer, BlockNews news);

  // Adds the live transfers and waits of this link to `pair`.
  void count_alive(LinkId link, PairStats& pair) const;

 private:
  struct Fetch;
  struct Peer {
    std::unique_ptr<Link> link;
    net::TimerId timer;  // While opening: the deadline. Afterwards: the next RENEW.
    std::optional<Link::Unfinished> payload;  // The payload that was unfinished at the last RENEW,
    uint32_t payload_waits = 0;               // and at this many before it.
    std::vector<BlockNews> news;              // Until it is open.
  };
  using PeerKey = std::tuple<std::string, TransportKind, uint8_t>;  // The last part is the stream.

  Status on_opened(Link& link) override;
  void on_message(Link& link, LinkMessage message, Fd shared, std::vector<std::byte> tail) override;
  PayloadSink* on_rows(Link& link, const Rows& rows) override;
  void on_payload_complete(Link& link, const Rows& rows) override;
  void on_rows_came(Link& link, TransferId id) override;
  void on_lost(Link& link, LinkLoss loss, const Error& reason) override;

  Result<LinkId> link_for_wait(const EndpointAddress& peer) override;
  Link* find_ready(LinkId id) override;

  bool on_same_machine(const EndpointAddress& peer) const;
  const char* misfit(const TransportTraits& transport, const EndpointAddress& peer,
                     TargetMemory memory) const;
  Result<const TransportTraits*> choose(const EndpointAddress& peer, TargetMemory memory) const;
  Result<LinkId> link_to(const EndpointAddress& peer, const TransportTraits& transport);
  uint8_t least_busy_stream(const EndpointAddress& peer, const TransportTraits& transport) const;
  uint64_t bytes_awaited(LinkId id) const;
  Result<LinkId> connect(const EndpointAddress& peer, const TransportTraits& transport,
                         uint8_t stream);
  void renew(LinkId id);
  void renew_later(LinkId id);
  Duration renew_interval() const;
  bool payload_has_stopped(Peer& peer);
  void refuse(TransferId id, const Error& why);

  void step(Fetch& fetch, const ReceiveSession::Event& event);
  void step_all_of(LinkId link, const ReceiveSession::Event& event);
  void apply(Fetch& fetch, const ReceiveSession::SendGrant& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCommitted& effect);
  void apply(Fetch& fetch, const ReceiveSession::SendCancel& effect);
  void apply(Fetch& fetch, const ReceiveSession::FailLink& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportDone& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect);
  void apply(Fetch& fetch, const ReceiveSession::ReportReleased& effect);
  void arm(Fetch& fetch);
  void await_release(Fetch& fetch);
  void stop_receiving(Fetch& fetch);
  void retire(Fetch& fetch);

  Fetch* find(TransferId id);
  // Returns the fetch if it uses this link, else nullptr.
  Fetch* find(TransferId id, const Link& link);
  Link& link_of(const Fetch& fetch);

  EndpointContext& context_;
  uint64_t epoch_ = 0;
  std::map<LinkId, Peer> peers_;
  std::map<PeerKey, LinkId> links_by_peer_;  // Links that new fetches may use.
  std::map<TransferId, std::unique_ptr<Fetch>> fetches_;
  Waits waits_;
};

}  // namespace pdjob::kvtransfer
