#include "router/async/async_store.h"

#include <filesystem>
#include <future>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "net/loop/event_loop.h"

namespace pdjob::router {
namespace {

TEST(AsyncStore, IsFullWhileBodiesWaitForASlowDisk) {
  const std::string file = testing::TempDir() + "/async_store_test.sqlite";
  std::filesystem::remove(file);
  net::EventLoop loop;
  auto database = AsyncDatabase::open(file);
  ASSERT_TRUE(database) << database.error().message;
  AsyncStore store(loop, *std::move(database));
  std::promise<void> disk;
  store.run([answered = disk.get_future().share()](AsyncDatabase&) -> AsyncStore::Then {
    answered.wait();
    return {};
  });
  const auto nothing = [](AsyncDatabase&) -> AsyncStore::Then { return {}; };
  store.run(nothing, limits::kAsyncStoreBytesMax);
  EXPECT_FALSE(store.full());
  store.run(nothing, 1);
  EXPECT_TRUE(store.full());
  disk.set_value();
  store.run([&loop](AsyncDatabase&) -> AsyncStore::Then { return [&loop] { loop.stop(); }; });
  loop.run();
  EXPECT_FALSE(store.full());
}

}  // namespace
}  // namespace pdjob::router
