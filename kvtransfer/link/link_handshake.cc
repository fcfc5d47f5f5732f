#include "kvtransfer/link/link_handshake.h"

#include <algorithm>
#include <utility>

namespace pdjob::kvtransfer {
namespace {

std::string_view text_of(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

const std::string* find(const Fingerprint& fingerprint, const std::string& name) {
  const auto field = std::find_if(fingerprint.begin(), fingerprint.end(),
                                  [&](const auto& candidate) { return candidate.first == name; });
  return field == fingerprint.end() ? nullptr : &field->second;
}

// Only ends whose CPU computes have this field. One on a GPU may have a peer on a CPU.
constexpr std::string_view kCpuField = "cpu";

Error mismatch(const std::string& name, const std::string* ours, const std::string* theirs) {
  const auto quoted = [](const std::string* value) {
    return value == nullptr ? std::string("absent") : "'" + *value + "'";
  };
  return {ErrorCode::kUnsupported, "KV fingerprint differs in " + name + ": sender " +
                                       quoted(ours) + ", receiver " + quoted(theirs)};
}

}  // namespace

Status compare(const Fingerprint& ours, const Fingerprint& theirs) {
  for (const auto& [name, value] : ours) {
    const std::string* other = find(theirs, name);
    if (other == nullptr ? name != kCpuField : *other != value) {
      return mismatch(name, &value, other);
    }
  }
  for (const auto& [name, value] : theirs) {
    if (find(ours, name) == nullptr && name != kCpuField) {
      return mismatch(name, nullptr, &value);
    }
  }
  return ok();
}

LinkHandshake::LinkHandshake(const LinkIdentity& self, Hello hello)
    : self_(self),
      expects_(Expects::kChallenge),
      transport_(hello.transport),
      hello_(std::move(hello)) {}

LinkHandshake::LinkHandshake(const LinkIdentity& self, TransportKind transport, Nonce nonce)
    : self_(self), expects_(Expects::kHello), transport_(transport), acceptor_nonce_(nonce) {}

LinkHandshake::Outcome LinkHandshake::step(const LinkMessage& message,
                                           std::vector<LinkMessage>& replies) {
  if (const auto* hello = std::get_if<Hello>(&message); hello && expects_ == Expects::kHello) {
    return on_hello(*hello, replies);
  }
  if (const auto* challenge = std::get_if<Challenge>(&message);
      challenge && expects_ == Expects::kChallenge) {
    return on_challenge(*challenge, replies);
  }
  if (const auto* prove = std::get_if<Prove>(&message); prove && expects_ == Expects::kProve) {
    return on_prove(*prove, replies);
  }
  if (std::holds_alternative<Welcome>(message) && expects_ == Expects::kWelcome) {
    return Outcome::kReady;
  }
  if (const auto* refuse = std::get_if<Refuse>(&message);
      refuse && (expects_ == Expects::kChallenge || expects_ == Expects::kWelcome)) {
    return fail(refuse->error);
  }
  return fail({ErrorCode::kCorrupt,
               std::string("unexpected ") + name_of(message) + " while a KV link opens"});
}

LinkHandshake::Outcome LinkHandshake::on_hello(const Hello& hello,
                                               std::vector<LinkMessage>& replies) {
  if (hello.version != kLinkVersion) {
    return refuse({ErrorCode::kUnsupported, "KV link versions differ: sender " +
                                                std::to_string(kLinkVersion) + ", receiver " +
                                                std::to_string(hello.version)},
                  replies);
  }
  if (hello.peer_engine_id != self_.engine_id) {
    return refuse({ErrorCode::kUnavailable, "KV link: engine '" + hello.peer_engine_id +
                                                "' is gone, here is '" + self_.engine_id + "'"},
                  replies);
  }
  if (hello.transport != transport_) {
    return refuse({ErrorCode::kInvalidArgument, "KV link: this socket serves another transport"},
                  replies);
  }
  hello_ = hello;
  expects_ = Expects::kProve;
  replies.push_back(Challenge{.nonce = acceptor_nonce_,
                              .certificate = self_.keys.certificate,
                              .proof = sign(self_.keys.secret, said_before_challenge())});
  return Outcome::kGoesOn;
}

LinkHandshake::Outcome LinkHandshake::on_challenge(const Challenge& challenge,
                                                   std::vector<LinkMessage>& replies) {
  acceptor_nonce_ = challenge.nonce;
  if (!is_certified(challenge.certificate, self_.keys.authority, hello_.peer_engine_id) ||
      !is_signed(challenge.proof, challenge.certificate.key, said_before_challenge())) {
    return fail({ErrorCode::kUnsupported, "KV link: the sender does not prove that it is '" +
                                              hello_.peer_engine_id + "' of this job"});
  }
  expects_ = Expects::kWelcome;
  replies.push_back(Prove{.certificate = self_.keys.certificate,
                          .proof = sign(self_.keys.secret, said_before_prove(self_.fingerprint)),
                          .fingerprint = self_.fingerprint});
  return Outcome::kGoesOn;
}

LinkHandshake::Outcome LinkHandshake::on_prove(const Prove& prove,
                                               std::vector<LinkMessage>& replies) {
  if (!is_certified(prove.certificate, self_.keys.authority, hello_.engine_id) ||
      !is_signed(prove.proof, prove.certificate.key, said_before_prove(prove.fingerprint))) {
    return refuse({ErrorCode::kUnsupported, "KV link: the receiver does not prove that it is '" +
                                                hello_.engine_id + "' of this job"},
                  replies);
  }
  const bool store = self_.fingerprint.empty() || prove.fingerprint.empty();
  if (const Status same = store ? ok() : compare(self_.fingerprint, prove.fingerprint); !same) {
    differs_ = true;
    return refuse(same.error(), replies);
  }
  replies.push_back(Welcome{});
  return Outcome::kReady;
}

LinkHandshake::Outcome LinkHandshake::refuse(Error error, std::vector<LinkMessage>& replies) {
  replies.push_back(Refuse{error});
  return fail(std::move(error));
}

LinkHandshake::Outcome LinkHandshake::fail(Error error) {
  error_ = std::move(error);
  return Outcome::kFailed;
}

// Every part has a known or a written length, so no other parts produce the same text.
std::string LinkHandshake::said(std::string_view side) const {
  return "pdjob kv " + std::string(side) + encode(LinkMessage(hello_)) +
         std::string(text_of(acceptor_nonce_)) + std::to_string(channel_.size()) + ':' + channel_;
}

std::string LinkHandshake::said_before_challenge() const { return said("acceptor"); }

std::string LinkHandshake::said_before_prove(const Fingerprint& fingerprint) const {
  return said("initiator") + encode(fingerprint);
}

}  // namespace pdjob::kvtransfer
