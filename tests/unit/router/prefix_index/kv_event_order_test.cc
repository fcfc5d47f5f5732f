#include "router/prefix_index/kv_event_order.h"

#include <utility>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using Words = std::vector<std::string>;

struct KvEventOrderTest : testing::Test {
  Words said() {
    Words words;
    for (const KvOrderEffect& effect : std::exchange(effects, {})) {
      if (const auto* begun = std::get_if<KvBegun>(&effect)) {
        words.push_back(begun->complete ? "all" : "anew");
      } else if (const auto* asked = std::get_if<AskKvReplay>(&effect)) {
        words.push_back("from " + std::to_string(asked->from));
      } else {
        words.push_back(std::get<KvBatch>(effect).payload);
      }
    }
    return words;
  }
  Words batch(KvEventOrder& engine, uint64_t number) {
    engine.batch(number, std::to_string(number), effects);
    return said();
  }
  Words replayed(KvEventOrder& engine, uint64_t number) {
    engine.replayed(number, std::to_string(number), effects);
    return said();
  }
  Words connected(KvEventOrder& engine) {
    engine.connected(effects);
    return said();
  }
  Words replay_ended(KvEventOrder& engine) {
    engine.replay_ended(effects);
    return said();
  }

  KvEventOrder alone{/*replays=*/false};
  KvEventOrder order{/*replays=*/true};
  std::vector<KvOrderEffect> effects;
};

TEST_F(KvEventOrderTest, WhoIsHeardFromTheFirstBatchOnHasToldAll) {
  EXPECT_EQ(connected(alone), Words{"anew"});
  EXPECT_EQ(batch(alone, 0), (Words{"all", "0"}));
  EXPECT_EQ(batch(alone, 1), Words{"1"});
}

TEST_F(KvEventOrderTest, WhoIsHeardLaterHasNot) {
  connected(alone);
  EXPECT_EQ(batch(alone, 17), (Words{"anew", "17"}));
  EXPECT_EQ(batch(alone, 18), Words{"18"});
}

TEST_F(KvEventOrderTest, AGapThatNobodyFillsMakesAllUncertain) {
  connected(alone);
  batch(alone, 0);
  EXPECT_EQ(batch(alone, 2), (Words{"anew", "2"}));
  EXPECT_EQ(alone.gaps(), 1U);
}

TEST_F(KvEventOrderTest, ALowerNumberIsAnEngineThatBeganAnew) {
  connected(alone);
  batch(alone, 5);
  EXPECT_EQ(batch(alone, 0), (Words{"all", "0"}));
  EXPECT_EQ(alone.gaps(), 0U);
}

TEST_F(KvEventOrderTest, ThePastIsToldBeforeWhatCameMeanwhile) {
  EXPECT_EQ(connected(order), (Words{"anew", "from 0"}));
  EXPECT_EQ(batch(order, 2), Words{});
  EXPECT_EQ(batch(order, 3), Words{});
  EXPECT_EQ(replayed(order, 0), (Words{"all", "0"}));
  EXPECT_EQ(replayed(order, 1), Words{"1"});
  EXPECT_EQ(replayed(order, 2), Words{"2"});
  EXPECT_EQ(replay_ended(order), Words{"3"});
  EXPECT_EQ(batch(order, 4), Words{"4"});
}

TEST_F(KvEventOrderTest, APastThatIsNotWhollyRememberedIsNotAll) {
  connected(order);
  EXPECT_EQ(replayed(order, 7), (Words{"anew", "7"}));
  EXPECT_EQ(replay_ended(order), Words{});
  EXPECT_EQ(batch(order, 8), Words{"8"});
}

TEST_F(KvEventOrderTest, AnEngineThatHasToldNothingYetHasNothing) {
  connected(order);
  EXPECT_EQ(replay_ended(order), Words{"all"});
  EXPECT_EQ(batch(order, 0), Words{"0"});
}

TEST_F(KvEventOrderTest, AGapIsFilledAndNothingIsForgotten) {
  connected(order);
  replay_ended(order);
  batch(order, 0);
  EXPECT_EQ(batch(order, 3), Words{"from 1"});
  EXPECT_EQ(replayed(order, 1), Words{"1"});
  EXPECT_EQ(replayed(order, 2), Words{"2"});
  EXPECT_EQ(replayed(order, 3), Words{"3"});
  EXPECT_EQ(replay_ended(order), Words{});
  EXPECT_EQ(batch(order, 4), Words{"4"});
  EXPECT_EQ(order.gaps(), 1U);
}

TEST_F(KvEventOrderTest, AGapThatTheEngineDoesNotRememberMakesAllUncertain) {
  connected(order);
  replay_ended(order);
  batch(order, 0);
  EXPECT_EQ(batch(order, 5), Words{"from 1"});
  EXPECT_EQ(replayed(order, 4), (Words{"anew", "4"}));
  EXPECT_EQ(replayed(order, 5), Words{"5"});
  EXPECT_EQ(replay_ended(order), Words{});
}

TEST_F(KvEventOrderTest, AReplayThatFillsNothingIsNotAskedForAgain) {
  connected(order);
  replay_ended(order);
  batch(order, 0);
  batch(order, 5);
  EXPECT_EQ(replay_ended(order), (Words{"anew", "5"}));
  EXPECT_EQ(batch(order, 6), Words{"6"});
}

TEST_F(KvEventOrderTest, WhatAReplayLeftOutIsAskedForAgain) {
  connected(order);
  replayed(order, 0);
  EXPECT_EQ(replayed(order, 2), Words{});
  EXPECT_EQ(replayed(order, 3), Words{});
  EXPECT_EQ(replay_ended(order), Words{"from 1"});
  EXPECT_EQ(replayed(order, 1), Words{"1"});
  EXPECT_EQ(replayed(order, 2), Words{"2"});
  EXPECT_EQ(replay_ended(order), Words{});
  EXPECT_FALSE(order.replaying());
}

TEST_F(KvEventOrderTest, WithoutAnAnswerWhatCameMeanwhileIsTheBeginning) {
  connected(order);
  batch(order, 4);
  order.replay_failed(effects);
  EXPECT_EQ(said(), (Words{"anew", "4"}));
  EXPECT_EQ(batch(order, 5), Words{"5"});
}

TEST_F(KvEventOrderTest, AnEngineOfHigherNumbersThatBeganAnewIsAskedForItsPast) {
  connected(order);
  replay_ended(order);
  batch(order, 0);
  batch(order, 1);
  batch(order, 2);
  EXPECT_EQ(batch(order, 1), Words{"from 0"});
  EXPECT_EQ(replayed(order, 0), (Words{"all", "0"}));
  EXPECT_EQ(replay_ended(order), Words{"1"});
}

TEST_F(KvEventOrderTest, WhoIsDisconnectedHasToldNothing) {
  connected(order);
  batch(order, 9);
  order.disconnected(effects);
  EXPECT_EQ(said(), Words{"anew"});
  EXPECT_FALSE(order.replaying());
  EXPECT_EQ(replayed(order, 3), Words{});
  EXPECT_EQ(connected(order), (Words{"anew", "from 0"}));
}

TEST_F(KvEventOrderTest, WhatWaitsForAReplayIsBounded) {
  connected(order);
  for (uint64_t number = 0; number < KvEventOrder::kHeldBackMax + 5; ++number) {
    batch(order, number + 1);
  }
  replayed(order, 0);
  EXPECT_EQ(replay_ended(order).size(), KvEventOrder::kHeldBackMax);
  EXPECT_EQ(batch(order, KvEventOrder::kHeldBackMax + 6),
            Words{"from " + std::to_string(KvEventOrder::kHeldBackMax + 1)});
}

}  // namespace
}  // namespace pdjob::router
