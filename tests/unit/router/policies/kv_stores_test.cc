#include "router/policies/kv_stores.h"

#include <gtest/gtest.h>

#include "router/policies/worker_table.h"

namespace pdjob::router {
namespace {

net::WorkerEntry on_machine(const std::string& name, net::Role role, const std::string& machine) {
  return {.name = name,
          .role = role,
          .kv_address =
              R"({"remote_engine_id":")" + name + R"(","remote_host_id":")" + machine + "\"}"};
}
net::WorkerEntry store_on(const std::string& machine) {
  return on_machine("store-" + machine, net::Role::kStore, machine);
}
net::WorkerEntry worker_on(const std::string& machine) {
  return on_machine("p-" + machine, net::Role::kPrefill, machine);
}

// The address of the store that the worker uses.
std::string used(const KvStores& stores, const net::WorkerEntry& worker) {
  return stores.address(stores.near(worker));
}

TEST(KvStores, AWorkerHasTheStoreOfItsOwnMachine) {
  KvStores stores({store_on("a")});
  EXPECT_EQ(used(stores, worker_on("a")), store_on("a").kv_address);
  EXPECT_EQ(used(stores, worker_on("b")), "") << "its machine has none";
  stores.replace({});
  EXPECT_EQ(used(stores, worker_on("a")), "") << "the store is gone";
}

TEST(KvStores, AStoreThatCameBackHasItsNewAddress) {
  KvStores stores({store_on("a")});
  net::WorkerEntry next = store_on("a");
  next.kv_address.insert(next.kv_address.size() - 1, R"(,"remote_port":2)");
  stores.replace({next});
  EXPECT_EQ(used(stores, worker_on("a")), next.kv_address);
}

TEST(KvStores, OfTwoOnOneMachineAllWorkersHaveTheFirst) {
  const KvStores stores({store_on("a"), on_machine("store-1", net::Role::kStore, "a")});
  EXPECT_EQ(used(stores, worker_on("a")), store_on("a").kv_address);
  EXPECT_FALSE(stores.several());
}

TEST(KvStores, AnEngineOfAnotherMakeHasNone) {
  net::WorkerEntry foreign = worker_on("a");
  WorkerTable table;
  table.replace({foreign}, KvStores({store_on("a")}));
  EXPECT_NE(table.find("p-a")->store.value, 0U);
  foreign.protocol = net::Protocol::kMooncake;
  table.replace({foreign}, KvStores({store_on("a")}));
  EXPECT_EQ(table.find("p-a")->store.value, 0U);
}

TEST(KvStores, AnAddressThatNamesNoMachineOrWouldBreakAHeadIsIgnored) {
  net::WorkerEntry store = store_on("a");
  for (const std::string& address :
       {std::string(), std::string("{}"), std::string("no JSON"),
        std::string(R"({"remote_host_id":""})"), std::string("{\"remote_host_id\":\r\n\"a\"}")}) {
    store.kv_address = address;
    EXPECT_EQ(used(KvStores({store}), worker_on("a")), "") << address;
  }
  net::WorkerEntry nowhere = worker_on("a");
  nowhere.kv_address = "{}";
  EXPECT_EQ(used(KvStores({store_on("a")}), nowhere), "");
}

// --- what each has

using Blocks = std::vector<uint64_t>;

struct KvStoresKnow : testing::Test {
  KvStores stores{{store_on("a"), store_on("b"), store_on("c")}};
  WorkerId a = stores.near(worker_on("a")), b = stores.near(worker_on("b")),
           c = stores.near(worker_on("c"));
};

TEST_F(KvStoresKnow, AStoreHasWhatWorkersOnItsMachineWereSent) {
  stores.note_sent(Blocks{1, 2, 3}, a);
  EXPECT_EQ(stores.matched(Blocks{1, 2, 9}, a), 2U);
  EXPECT_EQ(stores.matched(Blocks{1, 2, 9}, b), 0U);
  EXPECT_EQ(stores.matched(Blocks{1, 2, 9}), 2U);
}

TEST_F(KvStoresKnow, TheStoreWithMostOfAPromptIsNamedIfItHasMoreThanOnesOwn) {
  stores.note_sent(Blocks{1}, a);
  stores.note_sent(Blocks{1, 2, 3}, b);
  stores.note_sent(Blocks{1, 2}, c);
  EXPECT_EQ(stores.more(Blocks{1, 2, 3, 4}, a), b);
  EXPECT_EQ(stores.more(Blocks{1, 2, 3, 4}, b).value, 0U);
  EXPECT_EQ(stores.more(Blocks{7, 8}, a).value, 0U);
  EXPECT_EQ(stores.more(Blocks{}, a).value, 0U);
}

TEST_F(KvStoresKnow, AStoreThatCameAnewHasNothing) {
  stores.note_sent(Blocks{1, 2}, b);
  net::WorkerEntry next = store_on("b");
  next.engine_id = "another incarnation";
  stores.replace({store_on("a"), next});
  EXPECT_EQ(stores.near(worker_on("a")), a);
  EXPECT_NE(stores.near(worker_on("b")), b);
  EXPECT_EQ(stores.more(Blocks{1, 2}, a).value, 0U);
  stores.note_sent(Blocks{1, 2}, b);
  EXPECT_EQ(stores.more(Blocks{1, 2}, a).value, 0U) << "it has gone";
}

TEST(KvStoresAlone, ASingleStoreNeedsNoKnowledge) {
  KvStores stores({store_on("a")});
  const WorkerId a = stores.near(worker_on("a"));
  stores.note_sent(Blocks{1}, a);
  EXPECT_EQ(stores.matched(Blocks{1}, a), 0U);
}

}  // namespace
}  // namespace pdjob::router
