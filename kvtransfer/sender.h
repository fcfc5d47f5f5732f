// Sender: the offering half of an endpoint: accepts links, brings offers and grants together
// whichever comes first, and pushes. Decisions are SendSession's. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kvtransfer/endpoint_context.h"
#include "kvtransfer/link.h"
#include "kvtransfer/transfer_session.h"

namespace pdjob::kvtransfer {

// Links that have yet to prove that they know the token; beyond: the oldest one ends.
inline constexpr size_t kUnopenedLinksMax = 256;
// Grants on one link whose offers have not come: as many sequences as a peer has, and some.
inline constexpr size_t kWaitingGrantsOfLinkMax = 512;

class Sender final : private LinkHandler {
 public:
  explicit Sender(EndpointContext& context);
  ~Sender();

  void accept(UniqueFd socket, TransportKind transport);

  void offer(TransferId id, Region source, Instant deadline);
  void rows_ready(TransferId id, uint32_t ready);
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail, Instant ready_at);
  void withdraw(TransferId id, Error reason);

  // What of this link is alive now.
  void count_alive(LinkId link, PairStats& pair) const;

 private:
  struct Offer;
  // A grant that came before its offer.
  struct WaitingGrant {
    LinkId link;
    Grant grant;
    std::unique_ptr<RowSender> rows;
  };
  // A wait that came before its offer.
  struct EarlyWait {
    LinkId link;
    Instant until;
  };
  struct Peer {
    std::unique_ptr<Link> link;
    net::TimerId opening;
  };
  // Those of one name side by side: of which at most one proves it right.
  struct ByName {
    bool operator()(const TransferId& a, const TransferId& b) const {
      return std::tie(a.low, a.high) < std::tie(b.low, b.high);
    }
  };
  template <class Value>
  using Transfers = std::map<TransferId, Value, ByName>;
  using LinkKey = std::tuple<std::string, TransportKind, uint8_t>;  // The last is the stream.

  Status on_opened(Link& link) override;
  void on_message(Link& link, LinkMessage message, UniqueFd shared,
                  std::vector<std::byte> tail) override;
  void on_lost(Link& link, LinkLoss loss, const Error& reason) override;

  void end_oldest_unopened();
  void on_grant(Link& link, Grant grant, UniqueFd shared);
  void on_cancel(Link& link, const Cancel& cancel);
  void on_wait(Link& link, const Wait& wait);
  void on_renew(Link& link);
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
  std::deque<LinkId> unopened_;  // Oldest first; those that end already are not in it.
  Instant warns_again_at_{};
  std::map<LinkKey, LinkId> links_by_engine_;  // By receiver; those that are open.
  Transfers<std::unique_ptr<Offer>> offers_;
  Transfers<WaitingGrant> waiting_;
  Transfers<EarlyWait> early_waits_;
  // Why the last offers ended: a fetch that comes too late is told so at once.
  Transfers<Error> ended_;
  std::deque<TransferId> ended_order_;
};

}  // namespace pdjob::kvtransfer
