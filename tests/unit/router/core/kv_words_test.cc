#include "router/core/kv_words.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

constexpr TransferId kTransfer{0x0123456789abcdef, 0xfedcba9876543210};

const KvDialect& pdjob() { return dialect_of(Protocol::kAuto, /*concurrent=*/true); }
const KvDialect& nixl() { return dialect_of(Protocol::kAuto, /*concurrent=*/false); }
const KvDialect& sglang() { return dialect_of(Protocol::kSglang, /*concurrent=*/true); }

std::string fetch_params(const KvDialect& dialect, std::string_view address) {
  return dialect.fetch({kTransfer, address}).kv_transfer_params;
}

TEST(KvWords, APdjobOfferNamesTheTransfer) {
  EXPECT_EQ(
      pdjob().offer({kTransfer, "{}"}).kv_transfer_params,
      R"({"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"0123456789abcdeffedcba9876543210"})");
}

TEST(KvWords, WorkersWithoutKeysHandOverOnOneMachineOnly) {
  const net::WorkerEntry here{.host = "127.0.0.1", .local_links = true};
  net::WorkerEntry there{.host = "10.0.0.2"};
  EXPECT_EQ(why_no_hand_over(here, {.host = "localhost"}), "");
  EXPECT_NE(why_no_hand_over(here, there).find("--key-file"), std::string::npos);
  EXPECT_NE(why_no_hand_over(there, here), "");
  EXPECT_EQ(why_no_hand_over({.host = "10.0.0.1"}, there), "");
  EXPECT_NE(why_no_hand_over({.fingerprint = "a"}, {.fingerprint = "b"}).find("kv_type"),
            std::string::npos);
  there.protocol = net::Protocol::kSglang;
  EXPECT_EQ(why_no_hand_over({.host = "10.0.0.1"}, there), "they speak different protocols");
}

TEST(KvWords, AWorkersAbortCallNamesTheTransfer) {
  const auto freed = abort_call("DELETE /pdjob/transfers/{transfer}", kTransfer);
  ASSERT_TRUE(freed);
  EXPECT_EQ(freed->method, "DELETE");
  EXPECT_EQ(freed->target, "/pdjob/transfers/0123456789abcdeffedcba9876543210");
  EXPECT_EQ(freed->body, "");
  const auto posted = abort_call(R"(POST /abort {"id": "{transfer}"})", kTransfer);
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->target, "/abort");
  EXPECT_EQ(posted->body, R"({"id": "0123456789abcdeffedcba9876543210"})");
}

// A worker chooses the text.
TEST(KvWords, AnAbortCallThatWouldBreakAHeadIsNone) {
  for (const char* text : {"", "DELETE", "DELETE ", "DELETE x", "/x", "DELETE /x\r\nHost: y"}) {
    EXPECT_FALSE(abort_call(text, kTransfer)) << text;
  }
}

TEST(KvWords, APdjobFetchExtendsTheAddress) {
  EXPECT_EQ(
      fetch_params(pdjob(), R"({"remote_host":"h","remote_port":5})"),
      R"({"remote_host":"h","remote_port":5,"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":"0123456789abcdeffedcba9876543210"})");
  EXPECT_EQ(
      fetch_params(pdjob(), "{}"),
      R"({"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":"0123456789abcdeffedcba9876543210"})");
}

TEST(KvWords, AFetchSurvivesAnAddressThatIsNone) {
  EXPECT_EQ(fetch_params(pdjob(), "nonsense"), fetch_params(pdjob(), "{}"));
  EXPECT_EQ(sglang().fetch({kTransfer, "nonsense"}).bootstrap_room, "");
}

TEST(KvWords, NixlFetchesWhereTheReplySays) {
  EXPECT_NE(nixl().offer({}).kv_transfer_params.find(R"("remote_engine_id":null)"),
            std::string::npos);
  EXPECT_EQ(fetch_params(nixl(), R"({"remote_block_ids":[[1]], "y":null})"),
            R"({"remote_block_ids":[[1]], "y":null})");
}

TEST(KvWords, ReturnedParamsAreVerbatim) {
  EXPECT_EQ(
      returned_params(
          R"({"id":"x","kv_transfer_params":{"remote_block_ids":[[1]], "y":null},"usage":{}})"),
      R"({"remote_block_ids":[[1]], "y":null})");
  EXPECT_EQ(returned_params(R"({"kv_transfer_params":null})"), "");
  EXPECT_EQ(returned_params(R"({"choices":[]})"), "");
  EXPECT_EQ(returned_params("not json"), "");
}

TEST(KvWords, MooncakesBothLegsMeanTheSameRank) {
  const std::string address = mooncake_address(
      "h:8998",
      R"({"0":{"engine_id":"a","worker_addr":{"0":{"0":"tcp://h:1"}}},"1":{"engine_id":"b","worker_addr":{}}})");
  const KvDialect& mooncake = dialect_of(Protocol::kMooncake, true);
  for (const uint64_t rank : {0, 1}) {
    const HandOver hand_over{{.high = 4 + rank, .low = 9}, address};
    const KvWords offer = mooncake.offer(hand_over);
    EXPECT_EQ(offer.header_lines, "x-data-parallel-rank: " + std::to_string(rank) + "\r\n");
    EXPECT_EQ(offer.kv_transfer_params, pdjob().offer(hand_over).kv_transfer_params);
    const KvWords fetch = mooncake.fetch(hand_over);
    EXPECT_EQ(fetch.header_lines, "");
    EXPECT_EQ(fetch.kv_transfer_params,
              R"({"remote_bootstrap_addr":"http://h:8998","remote_engine_id":")" +
                  std::string(rank == 0 ? "a" : "b") +
                  R"(","do_remote_prefill":true,"do_remote_decode":false,"transfer_id":")" +
                  hand_over.transfer.to_string() + R"("})");
  }
}

constexpr const char* kPushReply =
    R"({"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"cmpl-r-0-01234567","remote_host":"h","remote_port":5600,"tp_size":2,"remote_num_tokens":41,"transfer_mode":"push"})";

TEST(KvWords, APushersAddressIsWhatAllItsRepliesSay) {
  const KvDialect& push = dialect_of(Protocol::kNixlPush, true);
  EXPECT_EQ(
      push.address_in(kPushReply),
      R"({"transfer_mode":"push","remote_engine_id":"e","remote_host":"h","remote_port":5600,"tp_size":2})");
  for (const char* other : {"", "{}", R"({"transfer_mode":"pull","remote_engine_id":"e"})",
                            R"({"transfer_mode":"push","remote_engine_id":"e"})"}) {
    EXPECT_EQ(push.address_in(other), "") << other;
  }
}

TEST(KvWords, APushIsMatchedByARequestIdThatIsNew) {
  const KvDialect& push = dialect_of(Protocol::kNixlPush, true);
  const std::string id = "r-" + kTransfer.to_string();
  const std::string address = push.address_in(kPushReply);
  const KvWords offer = push.offer({kTransfer, address, "r"});
  const KvWords fetch = push.fetch({kTransfer, address, "r"});
  EXPECT_EQ(offer.request_id, id);
  EXPECT_EQ(fetch.request_id, id);
  EXPECT_EQ(
      offer.kv_transfer_params,
      R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null,"transfer_id":")" +
          kTransfer.to_string() + R"("})");
  EXPECT_EQ(
      fetch.kv_transfer_params,
      R"({"transfer_mode":"push","remote_engine_id":"e","remote_host":"h","remote_port":5600,"tp_size":2,"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":")" +
          kTransfer.to_string() + R"(","remote_request_id":")" + id + R"("})");
  // In two hops the fetch keeps the prefill worker's own id.
  EXPECT_NE(push.fetch({kTransfer, kPushReply, "r"})
                .kv_transfer_params.find(R"("remote_request_id":"cmpl-r-0-01234567")"),
            std::string::npos);
}

TEST(KvWords, AMooncakeEngineIsWhatItsBootstrapServerNames) {
  for (const char* reply : {"", "{}", "[]", R"({"1":{"engine_id":"b"}})", R"({"0":{}})",
                            R"({"0":7})", R"({"detail":"Not Found"})"}) {
    EXPECT_EQ(mooncake_address("h:1", reply), "") << reply;
  }
}

TEST(KvWords, SglangsEnginesMeetInOneRoom) {
  const std::string address = bootstrap_address("10.0.0.1", 8998);
  const KvWords offer = sglang().offer({kTransfer, address});
  const KvWords fetch = sglang().fetch({kTransfer, address});
  EXPECT_EQ(offer.bootstrap_host, R"("10.0.0.1")");
  EXPECT_EQ(offer.bootstrap_port, "8998");
  EXPECT_EQ(fetch.bootstrap_host, offer.bootstrap_host);
  EXPECT_EQ(fetch.bootstrap_port, offer.bootstrap_port);
  EXPECT_EQ(fetch.bootstrap_room, offer.bootstrap_room);
  EXPECT_EQ(offer.kv_transfer_params, "");
}

TEST(KvWords, ARoomAndThoseBehindItArePositiveInt64) {
  const std::string address = bootstrap_address("h", 1);
  for (const uint64_t low : {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 62}) {
    const uint64_t room = std::stoull(sglang().offer({{7, low}, address}).bootstrap_room);
    EXPECT_GE(room, 1U);
    EXPECT_LE(room, (uint64_t{1} << 62) + 1);
  }
}

}  // namespace
}  // namespace pdjob::router
