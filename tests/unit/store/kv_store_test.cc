#include "store/kv_store.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "kvtransfer/link/link_keys.h"
#include "store/file_disk.h"
#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::store {
namespace {

namespace fs = std::filesystem;

using kvtransfer::BlockNews;
using kvtransfer::FetchDone;
using kvtransfer::FetchFailed;
using kvtransfer::in;
using kvtransfer::OfferDone;
using kvtransfer::TestEndpoint;
using kvtransfer::TestRegion;
using kvtransfer::transfer_id;
using kvtransfer::Way;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kRows = 64;
constexpr TestRegion::Shape kShape{.windows = 4, .rows = kRows, .row_bytes = 48};

// The first slab of the only store. Nothing: there is none.
std::byte* slab_of_this_process() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:pdjob-store") != std::string::npos) {
      const uint64_t address = std::stoull(line, nullptr, 16);
      return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
    }
  }
  return nullptr;
}

// Real endpoints of two workers and a store.
class KvStoreMoves : public testing::TestWithParam<Way> {
 protected:
  BlockNews news(BlockNews::Kind kind, std::vector<uint64_t> blocks, const TestRegion& rows) {
    BlockNews made{.kind = kind, .rows = kRows};
    for (const kvtransfer::Window& window : rows.region().windows) {
      made.row_bytes.push_back(window.row_bytes);
    }
    for (const uint64_t block : blocks) {
      made.blocks.push_back({.name = {.high = 1, .low = block}, .transfer = transfer_id(++last)});
    }
    return made;
  }

  // The worker computes a block, and the store takes it.
  void put(uint64_t block, const TestRegion& rows) {
    BlockNews held = news(BlockNews::Kind::kHeld, {block}, rows);
    held.holder = prefill->address();
    prefill->offer(transfer_id(last), rows.region(), in(seconds(30)));
    prefill->commit(transfer_id(last), kRows, {});
    prefill->tell(store->endpoint().address(), held);
    const size_t before = store->blocks().blocks();
    EXPECT_TRUE(run_until(loop, [&] { return store->blocks().blocks() > before; }));
  }
  // Another worker fetches it. Returns how that ends.
  kvtransfer::EndpointEvent get(uint64_t block, const TestRegion& to) {
    decode->tell(store->endpoint().address(), news(BlockNews::Kind::kWanted, {block}, to));
    decode->fetch(transfer_id(last), store->endpoint().address(), to.region(), kRows,
                  in(seconds(30)));
    std::optional<kvtransfer::EndpointEvent> event;
    EXPECT_TRUE(run_until(loop, [&] {
      event = decode.next(milliseconds(1));
      return event.has_value();
    }));
    return event.value_or(FetchFailed{});
  }
  bool offers_end() {
    return run_until(loop, [&] { return store->blocks().offers() == 0; });
  }
  TestRegion target() { return TestRegion(kShape, GetParam().target()); }

  uint64_t last = 0;
  net::EventLoop loop;
  std::unique_ptr<KvStore> store =
      KvStore::open(loop, {.memory_bytes = uint64_t{1} << 20},
                    {.config = {.transport = GetParam().transport, .tcp = GetParam().tcp},
                     .engine_id = "store",
                     .keys = kvtransfer::LinkAuthority("secret").issue("store")})
          .value();
  TestEndpoint prefill{{.engine_id = "prefill", .transport = GetParam().transport}};
  TestEndpoint decode{{.engine_id = "decode", .transport = GetParam().transport}};
};

TEST_P(KvStoreMoves, BlocksFromOneWorkerToAnother) {
  TestRegion rows(kShape);
  TestRegion to = target();
  rows.fill(7, 0, kRows);
  put(1, rows);
  rows.fill(8, 0, kRows);
  put(2, rows);
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(1, to)));
  EXPECT_TRUE(to.holds(7, 0, kRows));
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(2, to)));
  EXPECT_TRUE(to.holds(8, 0, kRows));
  EXPECT_TRUE(offers_end());
  EXPECT_EQ(store->blocks().counts().corrupt, 0U);
}

TEST_P(KvStoreMoves, NothingForABlockThatItLacks) {
  TestRegion to = target();
  const kvtransfer::EndpointEvent event = get(1, to);
  ASSERT_TRUE(std::holds_alternative<FetchFailed>(event));
  EXPECT_EQ(std::get<FetchFailed>(event).error.code, ErrorCode::kNotFound);
}

TEST_P(KvStoreMoves, NothingAfterADrain) {
  TestRegion rows(kShape);
  TestRegion to = target();
  put(1, rows);
  store->drain([] {});
  EXPECT_TRUE(std::holds_alternative<FetchFailed>(get(1, to)));
}

TEST_P(KvStoreMoves, NoBlockWhoseWorkerHasGone) {
  TestRegion rows(kShape);
  {
    TestEndpoint gone({.engine_id = "gone", .transport = GetParam().transport});
    BlockNews held = news(BlockNews::Kind::kHeld, {1}, rows);
    held.holder = gone->address();
    gone->tell(store->endpoint().address(), held);
    EXPECT_TRUE(run_until(loop, [&] { return store->blocks().fetches() == 1; }));
  }
  EXPECT_TRUE(run_until(loop, [&] { return store->blocks().fetches() == 0; }));
  EXPECT_EQ(store->blocks().counts().fetches_failed, 1U);
  EXPECT_TRUE(run_until(loop, [&] { return store->blocks().slots().bytes_used() == 0; }));
}

TEST_P(KvStoreMoves, NoBlockWhoseBytesHaveChanged) {
  TestRegion rows(kShape);
  TestRegion to = target();
  rows.fill(7, 0, kRows);
  put(1, rows);
  std::byte* const slab = slab_of_this_process();
  ASSERT_NE(slab, nullptr);
  slab[100] ^= std::byte{1};
  EXPECT_TRUE(std::holds_alternative<FetchFailed>(get(1, to)));
  EXPECT_TRUE(offers_end());
  EXPECT_EQ(store->blocks().counts().corrupt, 1U);
  EXPECT_EQ(store->blocks().blocks(), 0U);
  put(1, rows);
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(1, to)));
  EXPECT_TRUE(to.holds(7, 0, kRows));
}

// A digest must not depend on the transport.
TEST_P(KvStoreMoves, ALargeBlockThatCameByAnotherTransport) {
  const TestRegion::Shape large{.windows = 4, .rows = kRows, .row_bytes = 8192};
  store = KvStore::open(
              loop, {.memory_bytes = uint64_t{1} << 26},
              {.engine_id = "store", .keys = kvtransfer::LinkAuthority("secret").issue("store")})
              .value();
  TestRegion rows(large);
  TestRegion to(large, GetParam().target());
  rows.fill(7, 0, kRows);
  TestEndpoint other{{.engine_id = "other",
                      .transport = GetParam().transport == kvtransfer::TransportKind::kShm
                                       ? kvtransfer::TransportKind::kTcp
                                       : kvtransfer::TransportKind::kAuto}};
  BlockNews held = news(BlockNews::Kind::kHeld, {1}, rows);
  held.holder = other->address();
  other->offer(transfer_id(last), rows.region(), in(seconds(30)),
               {.changed = std::make_shared<std::atomic<bool>>(false)});
  other->commit(transfer_id(last), kRows, {});
  other->tell(store->endpoint().address(), held);
  EXPECT_TRUE(run_until(loop, [&] { return store->blocks().blocks() == 1; }));
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(1, to)));
}

class KvStoreOnDisk : public KvStoreMoves {
 protected:
  KvStoreOnDisk() { reopen(); }
  ~KvStoreOnDisk() override { fs::remove_all(folder); }

  // What was in memory is lost.
  void reopen() {
    store.reset();
    constexpr uint64_t kBytes = uint64_t{1} << 20;
    const Slots slots = Slots::of_disk(kBytes);
    std::vector<StoredBlock> found;
    auto disk = FileDisk::open(folder, slots.slab_bytes(), slots.slabs(), found).value();
    store = KvStore::open(loop, {.memory_bytes = kBytes, .disk_bytes = kBytes},
                          {.config = {.transport = GetParam().transport, .tcp = GetParam().tcp},
                           .engine_id = "store",
                           .keys = kvtransfer::LinkAuthority("secret").issue("store")},
                          std::move(disk), std::move(found))
                .value();
  }
  void put_and_drain(uint64_t block, const TestRegion& rows) {
    put(block, rows);
    bool written = false;
    store->drain([&] { written = true; });
    EXPECT_TRUE(run_until(loop, [&] { return written; }));
  }

  const std::string folder = testing::TempDir() + "/kv_store_disk_" + std::to_string(getpid());
};

TEST_P(KvStoreOnDisk, GivesWhatAnEarlierStoreTook) {
  TestRegion rows(kShape);
  TestRegion to = target();
  rows.fill(7, 0, kRows);
  put_and_drain(1, rows);
  reopen();
  EXPECT_EQ(store->blocks().disk().size(), 1U);
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(1, to)));
  EXPECT_TRUE(to.holds(7, 0, kRows));
  EXPECT_TRUE(offers_end());
  EXPECT_EQ(store->blocks().counts().read, 1U);
}

TEST_P(KvStoreOnDisk, GivesNoBlockWhoseFileHasChanged) {
  TestRegion rows(kShape);
  TestRegion to = target();
  rows.fill(7, 0, kRows);
  put_and_drain(1, rows);
  {
    std::fstream file(folder + "/0/0.kv", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('x');
  }
  reopen();
  EXPECT_TRUE(std::holds_alternative<FetchFailed>(get(1, to)));
  EXPECT_TRUE(offers_end());
  EXPECT_EQ(store->blocks().counts().corrupt, 1U);
  EXPECT_EQ(store->blocks().disk().size(), 0U);
}

TEST_P(KvStoreOnDisk, ARemovedFolderCostsOnlyWhatWasThere) {
  TestRegion rows(kShape);
  TestRegion to = target();
  rows.fill(7, 0, kRows);
  put_and_drain(1, rows);
  reopen();
  fs::remove_all(folder);
  EXPECT_TRUE(std::holds_alternative<FetchFailed>(get(1, to)));
  put(2, rows);
  EXPECT_TRUE(run_until(loop, [&] { return store->blocks().counts().disk_failed == 2; }));
  EXPECT_TRUE(std::holds_alternative<FetchDone>(get(2, to)));
}

INSTANTIATE_TEST_SUITE_P(Ways, KvStoreOnDisk,
                         testing::Values(kvtransfer::kShmWay, kvtransfer::kTcpWay),
                         [](const auto& way) { return way.param.name; });
INSTANTIATE_TEST_SUITE_P(Ways, KvStoreMoves,
                         testing::Values(kvtransfer::kShmWay, kvtransfer::kTcpWay),
                         [](const auto& way) { return way.param.name; });

}  // namespace
}  // namespace pdjob::store
