// LinkHandshake: how two endpoints come to trust a link, as seen from either end.
//
//   initiator                                   acceptor
//   HELLO {ids, epoch, nonce}        ------->
//                                    <-------   CHALLENGE {nonce, certificate, proof}
//                                                the initiator now knows that it has reached the
//                                                engine it wanted, and only then shows its own
//   PROVE {certificate, proof, fingerprint} -->
//                                    <-------   WELCOME, or REFUSE {error}
//
// Each proof is a signature over all earlier messages and over its side. On an encrypted socket it
// also covers a value that only the two ends know. So no one can replay, reflect or pass on a
// proof. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::kvtransfer {

// The identity that an endpoint presents on each of its links. Value.
struct LinkIdentity {
  std::string engine_id;
  LinkKeys keys;
  Fingerprint fingerprint;
};

// Fails with the first field that differs, with both values.
Status compare(const Fingerprint& ours, const Fingerprint& theirs);

class LinkHandshake {
 public:
  enum class Outcome { kGoesOn, kReady, kFailed };

  // As initiator: `hello` is the first message to send.
  LinkHandshake(const LinkIdentity& self, Hello hello);
  // As acceptor over `transport`. `nonce` is fresh.
  LinkHandshake(const LinkIdentity& self, TransportKind transport, Nonce nonce);

  // Sets the value that only the two ends of the encrypted socket know; empty: not encrypted. Call
  // it before step().
  void bind(std::string channel) { channel_ = std::move(channel); }

  // Appends the messages to send. After kFailed, error() says why, and the link is closed once they
  // are sent.
  Outcome step(const LinkMessage& message, std::vector<LinkMessage>& replies);

  const Error& error() const { return error_; }
  // After kFailed, of an acceptor: a peer of this job has another model, other weights or another
  // build.
  bool differs() const { return differs_; }
  // The initiator's HELLO. An acceptor knows it from kReady on.
  const Hello& hello() const { return hello_; }

 private:
  Outcome on_hello(const Hello& hello, std::vector<LinkMessage>& replies);
  Outcome on_challenge(const Challenge& challenge, std::vector<LinkMessage>& replies);
  Outcome on_prove(const Prove& prove, std::vector<LinkMessage>& replies);
  Outcome refuse(Error error, std::vector<LinkMessage>& replies);
  Outcome fail(Error error);
  std::string said_before_challenge() const;
  std::string said_before_prove(const Fingerprint& fingerprint) const;
  std::string said(std::string_view side) const;

  enum class Expects { kHello, kChallenge, kProve, kWelcome };

  const LinkIdentity& self_;
  Expects expects_;
  TransportKind transport_;
  Hello hello_;
  Nonce acceptor_nonce_{};
  std::string channel_;
  Error error_;
  bool differs_ = false;
};

}  // namespace pdjob::kvtransfer
