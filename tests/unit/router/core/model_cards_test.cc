#include "router/core/model_cards.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

net::WorkerEntry worker(const std::string& name, const std::string& model, uint32_t context_max,
                        uint64_t created) {
  return {.name = name,
          .engine_id = name,
          .role = net::Role::kBoth,
          .host = "h",
          .port = 1,
          .model = model,
          .context_max = context_max,
          .created = created};
}

TEST(ModelCards, AreWhatWorkersSay) {
  RouterConfig config;
  config.models = {"asleep"};
  Router router(config, 1);
  std::vector<RouterEffect> effects;
  router.step(WorkersChanged{{worker("a", "m", 4096, 900), worker("b", "m", 2048, 800),
                              worker("c", "m", 0, 0), worker("d", "unknown", 0, 0)}},
              Instant{}, effects);
  const auto cards = model_cards(router, 1000);
  ASSERT_EQ(cards.size(), 3U);
  EXPECT_EQ(cards[0].id, "asleep");
  EXPECT_EQ(cards[0].created, 1000) << "as old as the router";
  EXPECT_EQ(cards[0].context_max, 0U);
  EXPECT_EQ(cards[1].id, "m");
  EXPECT_EQ(cards[1].created, 800) << "its oldest worker";
  EXPECT_EQ(cards[1].context_max, 2048U) << "its smallest worker";
  EXPECT_EQ(cards[2].created, 1000);
}

TEST(ModelCards, AnAdapterNamesItsModelAndFitsWhatItsWorkersFit) {
  Router router({}, 1);
  std::vector<RouterEffect> effects;
  net::WorkerEntry small = worker("a", "m", 2048, 900);
  net::WorkerEntry large = worker("b", "m", 4096, 800);
  large.adapters = {"sql"};
  router.step(WorkersChanged{{small, large}}, Instant{}, effects);
  const auto cards = model_cards(router, 1000);
  ASSERT_EQ(cards.size(), 2U);
  EXPECT_EQ(cards[0].id, "m");
  EXPECT_EQ(cards[0].parent, "");
  EXPECT_EQ(cards[1].id, "sql");
  EXPECT_EQ(cards[1].parent, "m");
  EXPECT_EQ(cards[1].context_max, 4096U) << "the small worker does not have it";
  EXPECT_EQ(cards[1].created, 800);
}

}  // namespace
}  // namespace pdjob::router
