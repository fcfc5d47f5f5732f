#include "engine/recipes/engine_command.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

EngineValues values(const std::string& role) {
  return {.model = "Qwen/Qwen3-0.6B",
          .served_name = "qwen",
          .name = role + "-0",
          .role = role,
          .host = "127.0.0.1",
          .engine_id = role + "-0.ab12.1",
          .lease = std::chrono::milliseconds(29'500),
          .threads = 2,
          .ports = {21000, 21001}};
}

EngineCommand command_of(const std::string& make, const std::string& role,
                         ForeignConfig config = {}) {
  return engine_command(shipped_engine_recipe(make), config, values(role));
}

std::string text_of(const EngineCommand& command) { return shell_text(command, ""); }

TEST(EngineCommand, OfVllmForPrefill) {
  EXPECT_EQ(
      text_of(command_of("vllm", "prefill")),
      R"(VLLM_NO_USAGE_STATS=1 VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=21001 )"
      R"(OMP_NUM_THREADS=2 VLLM_CPU_OMP_THREADS_BIND=nobind UCX_TLS=tcp,self,sm )"
      R"(vllm serve Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 --enable-server-load-tracking )"
      R"(--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","engine_id":"prefill-0.ab12.1",)"
      R"("kv_buffer_device":"cpu","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}')");
}

TEST(EngineCommand, OfVllmForDecodeOnAGpu) {
  EngineValues decode = values("decode");
  decode.gpu = true;
  EXPECT_EQ(
      text_of(engine_command(shipped_engine_recipe("vllm"), {}, decode)),
      R"(VLLM_NO_USAGE_STATS=1 VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=21001 )"
      R"(vllm serve Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 --enable-server-load-tracking )"
      R"(--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","engine_id":"decode-0.ab12.1",)"
      R"("kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}')");
}

TEST(EngineCommand, OfAnEngineThatTellsItsKvEventsHasTwoPortsMore) {
  EngineValues prefill = values("prefill");
  prefill.ports = {21000, 21001, 21002, 21003};
  const ForeignConfig config{.make = "vllm"};
  const EngineCommand command = engine_command(recipe_of(config), config, prefill);
  EXPECT_TRUE(text_of(command).ends_with(
      R"(--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq",)"
      R"("endpoint":"tcp://*:0;127.0.0.1:21002","replay_endpoint":"tcp://127.0.0.1:21003"}')"))
      << text_of(command);
  EXPECT_EQ(command.port_of("kv_events_port"), 21002);
  EXPECT_EQ(command.port_of("kv_replay_port"), 21003);

  const ForeignConfig silent{.make = "vllm", .kv_events = false};
  const EngineCommand other = engine_command(recipe_of(silent), silent, values("prefill"));
  EXPECT_EQ(text_of(other).find("kv-events"), std::string::npos);
  EXPECT_EQ(other.port_of("kv_events_port"), 0);
  EXPECT_FALSE(recipe_at(config, "fd00::1").publishes) << "engines bind IPv4 only";
}

TEST(EngineCommand, OfAnEngineWhoseEventsTheRouterCannotFollowSaysWhy) {
  const auto why = [](const ForeignConfig& config) { return kv_events_hindrance(config, "", 16); };
  EXPECT_EQ(why({.make = "vllm"}), "");
  EXPECT_EQ(why({.make = "vllm", .args = {"--block-size=128"}}), "");
  EXPECT_EQ(why({.make = "vllm", .args = {"--block-size", "8"}}),
            "its blocks have 8 tokens, and the router follows blocks of 16 tokens or a multiple: "
            "set --block-size to such a number, for both roles");
  EXPECT_EQ(why({.make = "vllm", .parallel = {.tensor = 2}, .nodes = 2}), "");
  EXPECT_EQ(
      why({.make = "vllm", .parallel = {.data = 2}, .nodes = 2}),
      "its data-parallel ranks are on several nodes, and the router knows the first one only");
  EXPECT_EQ(why({.make = "command", .recipe = {.command = {"run"}}}),
            "its recipe does not say how (`kv_events`)");
  EXPECT_TRUE(why({.make = "sglang"}).starts_with("its blocks have 1 token,"));
  EXPECT_EQ(kv_events_hindrance({.make = "sglang"}, "mooncake", 16), "")
      << "the store wants larger pages";
}

TEST(EngineCommand, OfAnEngineWhoseNearestNicsAreKnownNamesThem) {
  EngineValues decode = values("decode");
  decode.gpu = true;
  decode.nics = "mlx5_0,mlx5_1";
  const std::string vllm = text_of(engine_command(shipped_engine_recipe("vllm"), {}, decode));
  EXPECT_NE(vllm.find("UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 NCCL_IB_HCA==mlx5_0,mlx5_1 vllm serve"),
            std::string::npos)
      << vllm;
  const std::string sglang = text_of(engine_command(shipped_engine_recipe("sglang"), {}, decode));
  EXPECT_NE(sglang.find("UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 NCCL_IB_HCA==mlx5_0,mlx5_1 python3"),
            std::string::npos)
      << sglang;
  EXPECT_TRUE(sglang.ends_with(" --disaggregation-ib-device mlx5_0,mlx5_1")) << sglang;
}

TEST(EngineCommand, OfAnEngineKeepsTheNicsThatTheUserNames) {
  EngineValues decode = values("decode");
  decode.nics = "mlx5_0";
  const ForeignConfig config{.make = "sglang",
                             .args = {"--disaggregation-ib-device=mlx5_7"},
                             .env = {"UCX_NET_DEVICES=all"}};
  const EngineCommand command = engine_command(shipped_engine_recipe("sglang"), config, decode);
  const std::string text = text_of(command);
  EXPECT_NE(text.find("UCX_NET_DEVICES=all"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL_IB_HCA==mlx5_0"), std::string::npos) << text;
  EXPECT_NE(text.find("--disaggregation-ib-device=mlx5_7"), std::string::npos) << text;
  EXPECT_EQ(text.find("--disaggregation-ib-device mlx5_0"), std::string::npos) << text;
  EXPECT_EQ(command.warnings.size(), 2U);
}

TEST(EngineCommand, OfVllmThatDoesAllOfARequestHandsOverNoKv) {
  EXPECT_EQ(text_of(command_of("vllm", "both")),
            "VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=2 VLLM_CPU_OMP_THREADS_BIND=nobind "
            "UCX_TLS=tcp,self,sm vllm serve Qwen/Qwen3-0.6B --served-model-name qwen "
            "--host 127.0.0.1 --port 21000 --enable-server-load-tracking");
}

EngineCommand beside_store(const std::string& role, const StoreUse& store,
                           const ForeignConfig& config = {.make = "vllm"}) {
  EngineValues with = values(role);
  with.store = store;
  with.store_file = "/proc/7/fd/8";
  return engine_command(shipped_engine_recipe(config.make), config, with);
}

const StoreUse kMooncake{
    .kind = "mooncake", .host = "10.0.0.1", .port = 50051, .transport = "rdma"};
const StoreUse kLmcache{.kind = "lmcache", .host = "127.0.0.1", .port = 5555};

TEST(EngineCommand, OfVllmForPrefillBesideMooncakeHasBothConnectors) {
  const EngineCommand command = beside_store("prefill", kMooncake);
  EXPECT_EQ(
      text_of(command),
      R"(VLLM_NO_USAGE_STATS=1 VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=21001 )"
      R"(OMP_NUM_THREADS=2 VLLM_CPU_OMP_THREADS_BIND=nobind UCX_TLS=tcp,self,sm )"
      R"(MOONCAKE_CONFIG_PATH=/proc/7/fd/8 PYTHONHASHSEED=0 )"
      R"(vllm serve Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 --enable-server-load-tracking )"
      R"(--kv-transfer-config '{"kv_connector":"MultiConnector","kv_role":"kv_both","engine_id":"prefill-0.ab12.1",)"
      R"("kv_buffer_device":"cpu","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"connectors":[)"
      R"({"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cpu","kv_load_failure_policy":"fail",)"
      R"("kv_connector_extra_config":{"kv_lease_duration":30}},)"
      R"({"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both",)"
      R"("kv_connector_extra_config":{"load_async":true,"lookup_async":true}}]}}')");
  EXPECT_EQ(
      command.store_file,
      R"({"mode":"standalone-store","metadata_server":"P2PHANDSHAKE","master_server_address":"10.0.0.1:50051",)"
      R"("global_segment_size":0, "local_buffer_size":"4GB","protocol":"rdma","device_name":""})");
}

TEST(EngineCommand, OfVllmForDecodeBesideLmcacheHasBothConnectors) {
  const EngineCommand command = beside_store("decode", kLmcache);
  EXPECT_TRUE(text_of(command).ends_with(
      R"({"connectors":[)"
      R"({"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cpu","kv_load_failure_policy":"fail",)"
      R"("kv_connector_extra_config":{"kv_lease_duration":30}},)"
      R"({"kv_connector":"LMCacheMPConnector","kv_role":"kv_both","kv_connector_extra_config":{)"
      R"("lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":5555,)"
      R"("lmcache.mp.mq_timeout":5,"lmcache.mp.heartbeat_interval":2}}]}}')"))
      << text_of(command);
  EXPECT_EQ(command.store_file, "");
}

TEST(EngineCommand, OfVllmThatDoesAllOfARequestHasTheStoreAlone) {
  EXPECT_TRUE(text_of(beside_store("both", kLmcache))
                  .ends_with(R"(--kv-transfer-config '{"kv_connector":"LMCacheMPConnector",)"
                             R"("kv_role":"kv_both","kv_load_failure_policy":"recompute",)"
                             R"("kv_connector_extra_config":{"lmcache.mp.host":"tcp://127.0.0.1",)"
                             R"("lmcache.mp.port":5555,"lmcache.mp.mq_timeout":5,)"
                             R"("lmcache.mp.heartbeat_interval":2}}')"))
      << text_of(beside_store("both", kLmcache));
}

TEST(EngineCommand, OfSglangBesideMooncakeHasItBehindItsHierarchicalCache) {
  constexpr std::string_view kWhere =
      " MOONCAKE_MASTER=10.0.0.1:50051 MOONCAKE_TE_META_DATA_SERVER=P2PHANDSHAKE "
      "MOONCAKE_GLOBAL_SEGMENT_SIZE=0 MOONCAKE_PROTOCOL=rdma MOONCAKE_DEVICE='' "
      "MOONCAKE_LOCAL_HOSTNAME=127.0.0.1 python3 ";
  const std::string prefill = text_of(beside_store("prefill", kMooncake, {.make = "sglang"}));
  EXPECT_NE(prefill.find(kWhere), std::string::npos) << prefill;
  EXPECT_TRUE(
      prefill.ends_with(" --page-size 64 --enable-hierarchical-cache "
                        "--hicache-storage-backend mooncake "
                        "--hicache-storage-prefetch-policy timeout"))
      << prefill;
  const std::string decode = text_of(beside_store("decode", kMooncake, {.make = "sglang"}));
  EXPECT_NE(decode.find(kWhere), std::string::npos) << decode;
  EXPECT_TRUE(
      decode.ends_with(" --page-size 64 --disaggregation-decode-enable-offload-kvcache "
                       "--hicache-storage-backend mooncake"))
      << decode;
}

TEST(EngineCommand, AConnectorOfTheUsersWinsOverTheStore) {
  const EngineCommand command =
      beside_store("decode", kLmcache, {.make = "vllm", .args = {"--kv-transfer-config", "{}"}});
  EXPECT_TRUE(text_of(command).ends_with("--kv-transfer-config '{}'")) << text_of(command);
  EXPECT_EQ(command.warnings,
            (std::vector<std::string>{"engine.args sets --kv-transfer-config, which pdjob sets, "
                                      "too: yours is used"}));
}

TEST(EngineCommand, FillsWordsInTheUsersArgumentsToo) {
  const EngineCommand command =
      command_of("vllm", "both",
                 {.make = "vllm",
                  .args = {"--port={port}",
                           R"(--x={"http_port":"{port}","node":"{name}","a":{"b":{unknown}}})"},
                  .env = {"ME={host}"}});
  EXPECT_TRUE(text_of(command).ends_with(
      R"(--port=21000 '--x={"http_port":"21000","node":"both-0","a":{"b":{unknown}}}')"))
      << text_of(command);
  EXPECT_EQ(command.port(), 21000);
  EXPECT_EQ(command.environment.back(), (std::pair<std::string, std::string>{"ME", "127.0.0.1"}));
}

TEST(EngineCommand, OfSglang) {
  const EngineCommand prefill = command_of("sglang", "prefill");
  EXPECT_EQ(text_of(prefill),
            "SGLANG_ENABLE_FAILED_SESSION_PROBE=true MC_TCP_ENABLE_CONNECTION_POOL=1 "
            "OMP_NUM_THREADS=2 MC_FORCE_TCP=1 python3 -m sglang.launch_server --model-path "
            "Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 "
            "--enable-metrics --disaggregation-mode prefill --disaggregation-bootstrap-port 21001 "
            "--device cpu");
  EXPECT_EQ(prefill.kv_address, R"({"bootstrap_host":"127.0.0.1","bootstrap_port":21001})");
  const EngineCommand decode = command_of("sglang", "decode");
  EXPECT_EQ(text_of(decode),
            "SGLANG_ENABLE_FAILED_SESSION_PROBE=true MC_TCP_ENABLE_CONNECTION_POOL=1 "
            "OMP_NUM_THREADS=2 MC_FORCE_TCP=1 python3 -m sglang.launch_server --model-path "
            "Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 "
            "--enable-metrics --disaggregation-mode decode --device cpu");
  EXPECT_EQ(decode.kv_address, "");
}

TEST(EngineCommand, WhatTheUserAddsComesLast) {
  ForeignConfig config;
  config.program = "/opt/venv/bin/vllm";
  config.args = {"--max-model-len", "2048", "--enforce-eager"};
  config.env = {"VLLM_CPU_KVCACHE_SPACE=1"};
  const EngineCommand command = command_of("vllm", "both", config);
  EXPECT_EQ(text_of(command),
            "VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=2 VLLM_CPU_OMP_THREADS_BIND=nobind "
            "UCX_TLS=tcp,self,sm VLLM_CPU_KVCACHE_SPACE=1 /opt/venv/bin/vllm serve "
            "Qwen/Qwen3-0.6B --served-model-name qwen --host 127.0.0.1 --port 21000 "
            "--enable-server-load-tracking "
            "--max-model-len 2048 --enforce-eager");
  EXPECT_TRUE(command.warnings.empty());
}

TEST(EngineCommand, WhatTheUserContradictsIsTheUsersWithAWarning) {
  ForeignConfig config;
  config.args = {"--served_model_name=own", "--kv-transfer-config", "{}"};
  config.env = {"UCX_TLS=all", "OMP_NUM_THREADS=7"};
  const EngineCommand command = command_of("vllm", "decode", config);
  EXPECT_EQ(text_of(command),
            "VLLM_NO_USAGE_STATS=1 VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 "
            "VLLM_NIXL_SIDE_CHANNEL_PORT=21001 VLLM_CPU_OMP_THREADS_BIND=nobind UCX_TLS=all "
            "OMP_NUM_THREADS=7 vllm serve Qwen/Qwen3-0.6B --host 127.0.0.1 --port 21000 "
            "--enable-server-load-tracking "
            "--served_model_name=own --kv-transfer-config '{}'");
  EXPECT_EQ(command.words.at("served_name"), "own");
  EXPECT_EQ(command.warnings,
            (std::vector<std::string>{
                "engine.args sets --served-model-name, which pdjob sets, too: yours is used",
                "engine.args sets --kv-transfer-config, which pdjob sets, too: yours is used",
                "engine.env sets OMP_NUM_THREADS, which pdjob sets, too: yours is used",
                "engine.env sets UCX_TLS, which pdjob sets, too: yours is used"}));
}

TEST(EngineCommand, APortOfTheUsersIsTheEnginesPort) {
  ForeignConfig config;
  config.args = {"--port", "9000"};
  config.env = {"VLLM_NIXL_SIDE_CHANNEL_PORT=5601"};
  const EngineRecipe vllm = shipped_engine_recipe("vllm");
  EXPECT_EQ(engine_command(vllm, config, values("prefill")).port(), 9000);
  EXPECT_EQ(ports_of_user(vllm, config, values("prefill")), (std::vector<uint16_t>{9000, 5601}));
  EXPECT_EQ(ports_of_user(vllm, {}, values("prefill")), (std::vector<uint16_t>{0, 0}));
}

TEST(EngineCommand, AShellTakesItAsItIsShown) {
  EngineCommand command;
  command.argv = {"e", "it's", "", "a b", "$HOME"};
  command.environment = {{"A", "x y"}};
  EXPECT_EQ(shell_text(command, "KEY"), R"(A='x y' KEY=... e 'it'\''s' '' 'a b' '$HOME')");
}

TEST(EngineCommand, WhatMayBeASecretIsNotShown) {
  EngineCommand command;
  command.argv = {"e"};
  command.environment = {{"HF_TOKEN", "hf_1234"}, {"MY_API_KEY", "sk"}, {"B", "1"}};
  EXPECT_EQ(shell_text(command, ""), "HF_TOKEN=... MY_API_KEY=... B=1 e");
}

}  // namespace
}  // namespace pdjob::engine
