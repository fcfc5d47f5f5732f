// Sender: the offering half of an endpoint. It accepts links, matches offers with grants in either
// order, and pushes rows. SendSession makes the decisions. kv_endpoint.h describes offer(),
// rows_ready(), commit() and withdraw(). Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kvtransfer/link/link.h"
#include "kvtransfer/session/endpoint_context.h"
#include "kvtransfer/session/offer_terms.h"
#include "kvtransfer/session/transfer_session.h"

namespace pdjob::kvtransfer {

// The maximum number of links whose handshake is not complete. Beyond it, the oldest one is closed.
inline constexpr size_t kUnopenedLinksMax = 256;
// The maximum number of grants on one link that have no offer yet. It exceeds the sequences of any
// sensible peer.
inline constexpr size_t kWaitingGrantsOfLinkMax = 512;

class Sender final : private LinkHandler {
 public:
  explicit Sender(EndpointContext& context);
  ~Sender();

  // Begins the handshake of an accepted connection. It must complete within connect_timeout.
  void accept(std::unique_ptr<LinkSocket> socket, TransportKind transport);

  void offer(TransferId id, Region source, Instant deadline, OfferTerms terms = {});
  void refuse(TransferId id, const Error& reason);
  void rows_ready(TransferId id, uint32_t ready);
  // `ready_at`: when the last row became ready; it travels in COMMIT.
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail, Instant ready_at);
  void withdraw(TransferId id, Error reason);

  // Adds the live transfers and waits of this link to `pair`.
  void count_alive(LinkId link, PairStats& pair) const;

 private:
  struct Offer;
  // A grant that came before its offer.
  struct WaitingGrant {
    LinkId link;
    Grant grant;
    std::unique_ptr<RowSender> rows;
  };
  // A WAIT that came before its offer: that offer is kept until `until`.
  struct EarlyWait {
    LinkId link;
    Instant until;
  };
  struct Peer {
    std::unique_ptr<Link> link;
    net::TimerId opening;
  };
  // Sorts by name, the lower half of the id. The upper half is a proof (kv_endpoint.h). At most one
  // transfer of a name has the right one.
  struct ByName {
    bool operator()(const TransferId& a, const TransferId& b) const {
      return std::tie(a.low, a.high) < std::tie(b.low, b.high);
    }
  };
  template <class Value>
  using Transfers = std::map<TransferId, Value, ByName>;
  using LinkKey = std::tuple<std::string, TransportKind, uint8_t>;  // The last part is the stream.

  Status on_opened(Link& link) override;
  void on_message(Link& link, LinkMessage message, Fd shared, std::vector<std::byte> tail) override;
  void on_lost(Link& link, LinkLoss loss, const Error& reason) override;

  void end_oldest_unopened();
  void on_grant(Link& link, Grant grant, Fd shared);
  void on_cancel(Link& link, const Cancel& cancel);
  void on_wait(Link& link, const Wait& wait);
  void on_renew(Link& link);
  void on_blocks(Link& link, BlockNews news);
  void end_wait(Offer* offer, const Link& link, const Error& why);
  void grant(Offer& offer, LinkId link, const Grant& grant, std::unique_ptr<RowSender> rows);

  void step(Offer& offer, const SendSession::Event& event);
  void apply(Offer& offer, const SendSession::Push& effect);
  void apply(Offer& offer, const SendSession::SendCommit& effect);
  void apply(Offer& offer, const SendSession::SendAbort& effect);
  void apply(Offer& offer, const SendSession::SendCancelled& effect);
  void apply(Offer& offer, const SendSession::ReportDone& effect);
  void apply(Offer& offer, const SendSession::ReportFailed& effect);
  void stop_pushing(Offer& offer);
  void tell_end(const Offer& offer, EndpointEvent event);
  void arm(Offer& offer);
  void retire(Offer& offer);
  void remember(TransferId id, Error why);
  void refuse_impostors(TransferId id);

  Offer* find(TransferId id);
  Link* find(LinkId id);

  EndpointContext& context_;
  std::map<LinkId, Peer> peers_;
  std::deque<LinkId> unopened_;  // Oldest first; without links that are already ending.
  Instant warns_again_at_{};
  std::map<LinkKey, LinkId> links_by_engine_;  // Open links, by receiver.
  Transfers<std::unique_ptr<Offer>> offers_;
  Transfers<WaitingGrant> waiting_;
  Transfers<EarlyWait> early_waits_;
  // Why the latest offers ended: a late fetch gets this reason at once.
  Transfers<Error> ended_;
  std::deque<TransferId> ended_order_;
};

}  // namespace pdjob::kvtransfer
