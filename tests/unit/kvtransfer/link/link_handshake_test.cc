#include "kvtransfer/link/link_handshake.h"

#include <gtest/gtest.h>

namespace pdjob::kvtransfer {
namespace {

using Outcome = LinkHandshake::Outcome;

LinkIdentity identity(const std::string& engine_id, const std::string& token = "secret",
                      const Fingerprint& fingerprint = {{"kv_type", "f16"}}) {
  return {.engine_id = engine_id,
          .keys = LinkAuthority(token).issue(engine_id),
          .fingerprint = fingerprint};
}

Nonce nonce(int value) {
  Nonce made{};
  made[0] = static_cast<std::byte>(value);
  return made;
}

Hello hello() {
  return {.transport = TransportKind::kTcp,
          .epoch = 1,
          .engine_id = "decode",
          .peer_engine_id = "prefill",
          .nonce = nonce(1)};
}

// Runs both ends until they have nothing more to say.
struct Conversation {
  Conversation(const LinkIdentity& initiator_identity, const LinkIdentity& acceptor_identity,
               const Hello& first)
      : initiator(initiator_identity, first),
        acceptor(acceptor_identity, TransportKind::kTcp, nonce(2)) {
    std::vector<LinkMessage> to_acceptor = {first};
    while (!to_acceptor.empty() || !to_initiator.empty()) {
      for (const LinkMessage& message : std::exchange(to_acceptor, {})) {
        acceptor_outcome = acceptor.step(message, to_initiator);
      }
      for (const LinkMessage& message : std::exchange(to_initiator, {})) {
        initiator_outcome = initiator.step(message, to_acceptor);
      }
    }
  }

  LinkHandshake initiator;
  LinkHandshake acceptor;
  std::vector<LinkMessage> to_initiator;
  Outcome initiator_outcome = Outcome::kGoesOn;
  Outcome acceptor_outcome = Outcome::kGoesOn;
};

TEST(LinkHandshake, OpensBetweenEquals) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill");
  const Conversation talk(decode, prefill, hello());
  EXPECT_EQ(talk.initiator_outcome, Outcome::kReady);
  EXPECT_EQ(talk.acceptor_outcome, Outcome::kReady);
  EXPECT_EQ(talk.acceptor.hello().engine_id, "decode");
}

TEST(LinkHandshake, InitiatorFindsOutAboutAWrongTokenFirst) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill", "other");
  const Conversation talk(decode, prefill, hello());
  EXPECT_EQ(talk.initiator_outcome, Outcome::kFailed);
  EXPECT_EQ(talk.acceptor_outcome, Outcome::kGoesOn);  // It never saw a fingerprint.
  EXPECT_EQ(talk.initiator.error().code, ErrorCode::kUnsupported);
}

TEST(LinkHandshake, AcceptorRefusesAWrongProof) {
  const LinkIdentity prefill = identity("prefill");
  LinkHandshake acceptor(prefill, TransportKind::kTcp, nonce(2));
  std::vector<LinkMessage> replies;
  ASSERT_EQ(acceptor.step(hello(), replies), Outcome::kGoesOn);
  // Reflecting the acceptor's own proof must fail.
  Prove prove{.proof = std::get<Challenge>(replies[0]).proof, .fingerprint = prefill.fingerprint};
  EXPECT_EQ(acceptor.step(prove, replies), Outcome::kFailed);
  EXPECT_EQ(std::get<Refuse>(replies[1]).error.code, ErrorCode::kUnsupported);
}

TEST(LinkHandshake, ReplayedProofDoesNotFitAnotherNonce) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill");
  LinkHandshake initiator(decode, hello());
  LinkHandshake acceptor(prefill, TransportKind::kTcp, nonce(2));
  LinkHandshake later(prefill, TransportKind::kTcp, nonce(3));
  std::vector<LinkMessage> challenge, prove, ignored;
  acceptor.step(hello(), challenge);
  initiator.step(challenge[0], prove);
  later.step(hello(), ignored);
  EXPECT_EQ(later.step(prove[0], ignored), Outcome::kFailed);
}

TEST(LinkHandshake, StolenKeysSpeakForTheirOwnWorkerOnly) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill");
  // The thief has everything of another worker of the job, but claims to be `decode`.
  LinkIdentity thief = identity("another decode");
  thief.engine_id = "decode";
  const Conversation as_receiver(thief, prefill, hello());
  EXPECT_EQ(as_receiver.acceptor_outcome, Outcome::kFailed);
  EXPECT_NE(as_receiver.acceptor.error().message.find("does not prove that it is 'decode'"),
            std::string::npos);
  thief.engine_id = "prefill";
  const Conversation as_sender(decode, thief, hello());
  EXPECT_EQ(as_sender.initiator_outcome, Outcome::kFailed);
  EXPECT_EQ(as_sender.acceptor_outcome, Outcome::kGoesOn);  // It never saw a fingerprint.
  // Anybody can ask for the victim's certificate, but it is useless without the victim's secret.
  thief.keys.certificate = prefill.keys.certificate;
  EXPECT_EQ(Conversation(decode, thief, hello()).initiator_outcome, Outcome::kFailed);
  // A certificate by the thief's own authority is useless too.
  thief.keys = LinkAuthority("not the job's").issue("prefill");
  thief.keys.authority = decode.keys.authority;
  EXPECT_EQ(Conversation(decode, thief, hello()).initiator_outcome, Outcome::kFailed);
}

TEST(LinkHandshake, IsOfOneChannel) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill");
  for (const bool same : {true, false}) {
    LinkHandshake initiator(decode, hello());
    LinkHandshake acceptor(prefill, TransportKind::kTcp, nonce(2));
    initiator.bind("what two ends know");
    acceptor.bind(same ? "what two ends know" : "what the next two know");
    std::vector<LinkMessage> challenge, prove;
    acceptor.step(hello(), challenge);
    EXPECT_EQ(initiator.step(challenge[0], prove), same ? Outcome::kGoesOn : Outcome::kFailed);
  }
}

TEST(LinkKeys, OfASpecAreTheSame) {
  const LinkKeys keys = LinkAuthority("secret").issue("decode");
  const LinkKeys again = parse_link_keys(encode(keys)).value();
  EXPECT_EQ(again.authority, keys.authority);
  EXPECT_EQ(again.secret, keys.secret);
  EXPECT_EQ(again.certificate, keys.certificate);
  EXPECT_EQ(again.tls, keys.tls);
  EXPECT_NE(LinkAuthority("secret").issue("decode").secret, keys.secret) << "new ones each time";
  for (const std::string& text : {std::string(), encode(keys) + "0", encode(keys).substr(2),
                                  std::string(encode(keys).size(), 'x')}) {
    EXPECT_FALSE(parse_link_keys(text));
  }
}

TEST(LinkHandshake, MismatchNamesTheFieldWithBothValues) {
  const LinkIdentity prefill =
      identity("prefill", "secret", {{"kv_type", "f16"}, {"layers", "30"}});
  const LinkIdentity decode = identity("decode", "secret", {{"kv_type", "q8_0"}, {"layers", "30"}});
  const Conversation talk(decode, prefill, hello());
  EXPECT_EQ(talk.initiator.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(talk.initiator.error().message,
            "KV fingerprint differs in kv_type: sender 'f16', receiver 'q8_0'");
  EXPECT_EQ(talk.acceptor_outcome, Outcome::kFailed);
  EXPECT_TRUE(talk.acceptor.differs());
}

TEST(LinkHandshake, AbsentFieldsDiffer) {
  EXPECT_TRUE(compare({{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"a", "1"}}));
  EXPECT_EQ(compare({{"a", "1"}}, {}).error().message,
            "KV fingerprint differs in a: sender '1', receiver absent");
  EXPECT_EQ(compare({}, {{"a", "1"}}).error().message,
            "KV fingerprint differs in a: sender absent, receiver '1'");
}

TEST(LinkHandshake, CpusDifferOnlyIfBothEndsComputeOnOne) {
  EXPECT_EQ(compare({{"cpu", "AVX2"}}, {{"cpu", "AVX2 AVX512"}}).error().message,
            "KV fingerprint differs in cpu: sender 'AVX2', receiver 'AVX2 AVX512'");
  EXPECT_TRUE(compare({{"cpu", "AVX2"}}, {{"cpu", "AVX2"}}));
  EXPECT_TRUE(compare({{"cpu", "AVX2"}}, {}));
  EXPECT_TRUE(compare({}, {{"cpu", "AVX2"}}));
}

TEST(LinkHandshake, RefusesAnEarlierIncarnationsLink) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill-2");
  const Conversation talk(decode, prefill, hello());
  EXPECT_EQ(
      talk.initiator.error(),
      (Error{ErrorCode::kUnavailable, "KV link: engine 'prefill' is gone, here is 'prefill-2'"}));
}

TEST(LinkHandshake, RefusesAnotherVersionOrTransport) {
  const LinkIdentity decode = identity("decode"), prefill = identity("prefill");
  Hello newer = hello();
  newer.version = kLinkVersion + 1;
  EXPECT_EQ(Conversation(decode, prefill, newer).initiator.error().code, ErrorCode::kUnsupported);
  Hello other = hello();
  other.transport = TransportKind::kShm;
  EXPECT_EQ(Conversation(decode, prefill, other).initiator_outcome, Outcome::kFailed);
}

TEST(LinkHandshake, MessagesOutOfOrderFail) {
  const LinkIdentity prefill = identity("prefill");
  for (const LinkMessage& message :
       {LinkMessage(Challenge{}), LinkMessage(Prove{}), LinkMessage(Welcome{}),
        LinkMessage(Refuse{}), LinkMessage(Grant{}), LinkMessage(Rows{})}) {
    LinkHandshake acceptor(prefill, TransportKind::kTcp, nonce(2));
    std::vector<LinkMessage> replies;
    EXPECT_EQ(acceptor.step(message, replies), Outcome::kFailed) << name_of(message);
    EXPECT_TRUE(replies.empty());
  }
  for (const LinkMessage& message :
       {LinkMessage(hello()), LinkMessage(Welcome{}), LinkMessage(Prove{}), LinkMessage(Rows{})}) {
    LinkHandshake initiator(prefill, hello());
    std::vector<LinkMessage> replies;
    EXPECT_EQ(initiator.step(message, replies), Outcome::kFailed) << name_of(message);
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
