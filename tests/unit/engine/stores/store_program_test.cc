#include "engine/stores/store_program.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/recipes/engine_command.h"

namespace pdjob::engine {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

std::string text_of(const StoreProgram& store, const StoreUse& use) {
  const ForeignConfig config = program_of(store);
  const EngineRecipe recipe = recipe_of(config);
  std::vector<uint16_t> ports;
  for (const PortWord& word : port_words(recipe, {})) {
    EXPECT_EQ(word.count, 1U);
    ports.push_back(static_cast<uint16_t>(20900 + ports.size()));
  }
  return shell_text(engine_command(recipe, config,
                                   {.name = "store-0",
                                    .role = "store",
                                    .host = "10.0.0.2",
                                    .store = use,
                                    .ports = std::move(ports)}),
                    recipe.key_environment);
}

const StoreUse kMooncake{.kind = "mooncake",
                         .host = "10.0.0.1",
                         .port = 50051,
                         .transport = "tcp",
                         .memory_bytes = 8 * kGib};

TEST(StoreProgram, OfMooncakesMaster) {
  EXPECT_EQ(text_of({.kind = "mooncake", .is_master = true, .args = {"--threads=4"}}, kMooncake),
            "mooncake_master --rpc_address=10.0.0.2 --rpc_port=50051 --rpc_thread_num=4 "
            "--default_kv_lease_ttl=30000 --eviction_high_watermark_ratio=0.95 "
            "--eviction_ratio=0.1 --metrics_host=10.0.0.2 --metrics_port=20900 --logtostderr");
}

TEST(StoreProgram, OfANodesShareOfMooncake) {
  EXPECT_EQ(text_of({.kind = "mooncake", .args = {"--threads=4"}}, kMooncake),
            "mooncake_client --host=10.0.0.2 --port=20901 --master_server_address=10.0.0.1:50051 "
            "--metadata_server=P2PHANDSHAKE --protocol=tcp --global_segment_size=8589934592 "
            "--enable_http_server=true --http_port=20900 --logtostderr --threads=4");
}

TEST(StoreProgram, OfLmcacheInAFolder) {
  EXPECT_EQ(text_of({.kind = "lmcache", .folder = "/opt/venv/bin"},
                    {.kind = "lmcache",
                     .host = "127.0.0.1",
                     .port = 5555,
                     .memory_bytes = 8 * kGib + kGib / 2}),
            "/opt/venv/bin/lmcache server --host 127.0.0.1 --port 5555 --http-host 10.0.0.2 "
            "--http-port 20900 --l1-size-gb 8.5 --eviction-policy LRU "
            "--supported-transfer-mode auto");
}

TEST(StoreProgram, WhatTheUserContradictsIsTheUsers) {
  EXPECT_NE(text_of({.kind = "lmcache", .args = {"--eviction-policy", "FIFO"}},
                    {.kind = "lmcache", .host = "h", .port = 1, .memory_bytes = kGib})
                .find("--l1-size-gb 1 --supported-transfer-mode auto --eviction-policy FIFO"),
            std::string::npos);
}

}  // namespace
}  // namespace pdjob::engine
