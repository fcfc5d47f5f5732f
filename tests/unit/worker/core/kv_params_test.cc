#include "worker/core/kv_params.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

const kvtransfer::EndpointAddress kAddress{
    .engine_id = "e1", .host = "10.0.0.1", .port = 7000, .unix_path = "@kv", .host_id = "boot"};

TEST(KvParams, WritesTheAddressThatADecodeLegCarries) {
  EXPECT_EQ(kv_address_json(kAddress),
            R"({"remote_engine_id":"e1","remote_host":"10.0.0.1","remote_port":7000,)"
            R"("remote_unix_path":"@kv","remote_host_id":"boot"})");
}

TEST(KvParams, AnswersThePrefillLegOfTheTwoHopLikeVllm) {
  EXPECT_EQ(prefill_reply_params(kAddress, TransferId{1, 2}, 12),
            R"({"do_remote_prefill":true,"do_remote_decode":false,)"
            R"("transfer_id":"00000000000000010000000000000002",)"
            R"("remote_request_id":"00000000000000010000000000000002",)"
            R"("remote_block_ids":[],"remote_num_tokens":12,"tp_size":1,)"
            R"("remote_engine_id":"e1","remote_host":"10.0.0.1","remote_port":7000,)"
            R"("remote_unix_path":"@kv","remote_host_id":"boot"})");
}

TEST(KvParams, FindsThePeerInARequest) {
  openai::KvTransferParams params;
  params.remote_engine_id = "e1";
  params.remote_host = "10.0.0.1";
  params.remote_port = 7000;
  params.remote_unix_path = "@kv";
  params.remote_host_id = "boot";
  const kvtransfer::EndpointAddress peer = peer_address(params);
  EXPECT_EQ(kv_address_json(peer), kv_address_json(kAddress));
}

TEST(KvParams, ReadsAnAddressBackAsItWasWritten) {
  kvtransfer::EndpointAddress on_gpu = kAddress;
  on_gpu.gpu_path = "@gpu";
  for (const kvtransfer::EndpointAddress& address : {kAddress, on_gpu}) {
    const std::string json = kv_address_json(address);
    EXPECT_EQ(kv_address_json(peer_address(parse_kv_address(json).value())), json);
  }
  EXPECT_FALSE(parse_kv_address("{}").has_value());
  EXPECT_FALSE(parse_kv_address("<html>").has_value());
}

}  // namespace
}  // namespace pdjob::worker
