#include "worker/blocks/block_exchange.h"

#include <deque>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "worker/blocks/block_names.h"

namespace pdjob::worker {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::EndpointAddress;
using std::chrono::seconds;

constexpr SequenceId kFirst{0};
const std::string kTenant = "alice";

// The endpoint, without a peer: the test says what comes of each call.
class EndpointDouble final : public kvtransfer::KvTransfers {
 public:
  struct Offered {
    TransferId id;
    kvtransfer::Region source;
    kvtransfer::OfferTerms terms;
    bool committed = false;
  };
  struct Fetched {
    TransferId id;
    kvtransfer::Region target;
    Instant deadline;
    std::string peer;
  };

  const EndpointAddress& address() const override { return address_; }
  void offer(TransferId id, kvtransfer::Region source, Instant /*deadline*/,
             kvtransfer::OfferTerms terms) override {
    offers.push_back({.id = id, .source = std::move(source), .terms = std::move(terms)});
  }
  void refuse(TransferId id, Error /*reason*/) override { refused.push_back(id); }
  void rows_ready(TransferId /*id*/, uint32_t /*ready*/) override {}
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> /*tail*/) override {
    EXPECT_EQ(id, offers.back().id);
    EXPECT_EQ(rows, kBlockTokens);
    offers.back().committed = true;
  }
  void withdraw(TransferId /*id*/, Error /*reason*/) override {}
  void await(TransferId /*id*/, EndpointAddress /*peer*/, Instant /*until*/) override {}
  void fetch(TransferId id, EndpointAddress peer, kvtransfer::Region target, uint32_t rows,
             Instant deadline) override {
    EXPECT_EQ(rows, kBlockTokens);
    fetches.push_back(
        {.id = id, .target = std::move(target), .deadline = deadline, .peer = peer.engine_id});
  }
  void cancel(TransferId id) override { cancelled.push_back(id); }
  void tell(EndpointAddress peer, BlockNews news) override {
    told_to = peer.engine_id;
    told.push_back(std::move(news));
  }

  std::deque<Offered> offers;
  std::deque<Fetched> fetches;
  std::vector<TransferId> refused, cancelled;
  std::deque<BlockNews> told;
  std::string told_to;

 private:
  EndpointAddress address_{.engine_id = "worker"};
};

class BlockExchangeTest : public testing::Test {
 protected:
  BlockExchangeTest() {
    exchange_.attach(endpoint_);
    exchange_.use(EndpointAddress{.engine_id = "store"});
  }

  static std::shared_ptr<const std::vector<Token>> tokens(uint32_t count, Token first = 0) {
    std::vector<Token> made(count);
    for (uint32_t i = 0; i < count; ++i) {
      made[i] = (first + static_cast<Token>(i)) % 200;
    }
    return std::make_shared<const std::vector<Token>>(std::move(made));
  }
  // The worker computes tokens itself.
  void compute(SequenceId sequence, std::span<const Token> more) {
    const engine::StepItem item{.sequence = sequence, .tokens = more};
    ASSERT_TRUE(engine_->step({&item, 1}).has_value());
    exchange_.sequences().append(sequence, more, &kTenant);
  }
  void load(const std::shared_ptr<const std::vector<Token>>& prompt, uint32_t there = 0) {
    exchange_.load(kFirst, {.tokens = prompt, .tenant = kTenant}, there, news_);
  }
  // The next `count` fetches end well.
  void bring(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_FALSE(endpoint_.fetches.empty());
      const TransferId id = endpoint_.fetches.front().id;
      endpoint_.fetches.pop_front();
      EXPECT_TRUE(exchange_.take(kvtransfer::FetchDone{.id = id, .rows = kBlockTokens}, news_));
    }
  }
  void fail(ErrorCode code, bool region_safe = true) {
    ASSERT_FALSE(endpoint_.fetches.empty());
    failed_ = endpoint_.fetches.front().id;
    endpoint_.fetches.pop_front();
    EXPECT_TRUE(exchange_.take(
        kvtransfer::FetchFailed{.id = failed_, .error = {code, "why"}, .region_safe = region_safe},
        news_));
  }
  // What the load came to; 0 also if it has not ended.
  uint32_t rows_loaded() {
    if (news_.empty()) {
      return 0;
    }
    const auto loaded = std::get<BlockExchange::Loaded>(news_.back());
    EXPECT_TRUE(loaded.region_safe);
    news_.clear();
    return loaded.rows;
  }
  void awaited(const TransferId& id) {
    EXPECT_TRUE(exchange_.take(kvtransfer::OfferAwaited{.id = id}, news_));
  }

  Instant now_{};
  std::unique_ptr<engine::Engine> engine_ =
      std::move(*engine::open_engine({.kind = engine::EngineKind::kFake,
                                      .sequences = 2,
                                      .tokens_per_sequence = 512,
                                      .batch_tokens = 512}));
  EndpointDouble endpoint_;
  BlockExchange exchange_{*engine_,
                          {.meaning = "model", .now = [this] { return now_; }, .seed = 1}};
  std::vector<BlockExchange::News> news_;
  TransferId failed_;
};

// --- takes

TEST_F(BlockExchangeTest, AsksForOneBlockFirstAndThenForTheOthers) {
  const auto prompt = tokens(300);
  load(prompt);
  ASSERT_EQ(endpoint_.told.size(), 1U);
  EXPECT_EQ(endpoint_.told_to, "store");
  EXPECT_EQ(endpoint_.told[0].kind, BlockNews::Kind::kWanted);
  EXPECT_EQ(endpoint_.fetches.size(), 1U);
  bring(1);
  ASSERT_EQ(endpoint_.told.size(), 2U);
  EXPECT_EQ(endpoint_.told[1].blocks.size(), 3U);
  EXPECT_EQ(endpoint_.told[1].before, endpoint_.told[0].blocks[0].name);
  bring(3);
  EXPECT_EQ(rows_loaded(), 256U);
  EXPECT_EQ(engine_->length(kFirst), 256U);
}

TEST_F(BlockExchangeTest, TheLastTokenIsNeverLoaded) {
  load(tokens(128));
  bring(1);
  EXPECT_TRUE(endpoint_.fetches.empty());
  EXPECT_EQ(rows_loaded(), 64U);
}

TEST_F(BlockExchangeTest, APromptThatTheStoreDoesNotKnowCostsOneQuestion) {
  load(tokens(300));
  fail(ErrorCode::kNotFound);
  ASSERT_EQ(news_.size(), 1U);
  EXPECT_EQ(rows_loaded(), 0U);
  EXPECT_EQ(engine_->length(kFirst), 0U);
  EXPECT_TRUE(endpoint_.fetches.empty());
}

TEST_F(BlockExchangeTest, LoadsUpToTheFirstBlockThatIsMissing) {
  load(tokens(300));
  bring(1);
  bring(1);
  fail(ErrorCode::kNotFound);
  bring(1);
  EXPECT_EQ(rows_loaded(), 128U);
  EXPECT_EQ(engine_->length(kFirst), 128U);
}

TEST_F(BlockExchangeTest, RowsThatAreThereStayAndOnlyTheOthersAreLoaded) {
  const auto prompt = tokens(300);
  compute(kFirst, std::span(*prompt).first(70));
  const std::byte* const rows = engine_->kv_region(kFirst).windows[0].base;
  const size_t bytes = 70 * size_t{engine_->kv_region(kFirst).windows[0].row_bytes};
  const std::vector<std::byte> before(rows, rows + bytes);
  load(prompt, 70);
  EXPECT_EQ(endpoint_.told[0].blocks[0].name, exchange_.sequences().names_of(*prompt, kTenant)[1]);
  const kvtransfer::Region& target = endpoint_.fetches[0].target;
  const engine::KvWindow& window = engine_->kv_region(kFirst).windows[0];
  EXPECT_EQ(target.windows[0].base, window.base + size_t{64} * window.row_bytes);
  EXPECT_EQ(target.rows_max, 64U);
  fail(ErrorCode::kNotFound);
  EXPECT_EQ(rows_loaded(), 70U);
  EXPECT_EQ(engine_->length(kFirst), 70U);
  EXPECT_EQ(std::vector(rows, rows + bytes), before);
}

TEST_F(BlockExchangeTest, RowsThatABrokenBlockMayHaveSpoiltAreNotUsed) {
  const auto prompt = tokens(300);
  compute(kFirst, std::span(*prompt).first(70));
  load(prompt, 70);
  fail(ErrorCode::kCorrupt);
  EXPECT_EQ(rows_loaded(), 64U);
  EXPECT_EQ(engine_->length(kFirst), 64U);
  EXPECT_EQ(exchange_.sequences().names(kFirst).size(), 1U);
}

TEST_F(BlockExchangeTest, AStoreThatIsLateIsLeftAloneForAWhile) {
  load(tokens(300));
  fail(ErrorCode::kTimeout);
  EXPECT_EQ(rows_loaded(), 0U);
  EXPECT_EQ(exchange_.totals().failures, 1U);
  load(tokens(300));
  EXPECT_EQ(news_.size(), 1U) << "at once";
  EXPECT_TRUE(endpoint_.fetches.empty());
  news_.clear();
  now_ += seconds(6);
  load(tokens(300));
  EXPECT_EQ(endpoint_.fetches.size(), 1U);
}

TEST_F(BlockExchangeTest, AStoreThatNoRequestNamesAnyMoreIsLeftAlone) {
  exchange_.use(std::nullopt);
  load(tokens(300));
  EXPECT_EQ(rows_loaded(), 0U);
  exchange_.use(EndpointAddress{.engine_id = "store"});
  load(tokens(300));
  EXPECT_EQ(endpoint_.fetches.size(), 1U);
}

TEST_F(BlockExchangeTest, AnotherStoreIsAskedAtOnce) {
  load(tokens(300));
  fail(ErrorCode::kUnavailable);
  news_.clear();
  exchange_.use(EndpointAddress{.engine_id = "its successor"});
  load(tokens(300));
  EXPECT_EQ(endpoint_.told_to, "its successor");
}

TEST_F(BlockExchangeTest, ASequenceThatAHungStoreMayWriteIsUnsafeUntilReleased) {
  load(tokens(300));
  fail(ErrorCode::kTimeout, false);
  ASSERT_EQ(news_.size(), 1U);
  EXPECT_FALSE(std::get<BlockExchange::Loaded>(news_[0]).region_safe);
  now_ += seconds(60);
  compute(SequenceId{1}, *tokens(64));
  exchange_.tell_of_new_blocks();
  EXPECT_EQ(endpoint_.told.size(), 1U) << "it is left alone";
  EXPECT_TRUE(exchange_.take(kvtransfer::FetchReleased{.id = failed_}, news_));
  ASSERT_EQ(news_.size(), 2U);
  EXPECT_EQ(std::get<BlockExchange::Released>(news_[1]).sequence, kFirst);
  EXPECT_EQ(engine_->length(kFirst), 0U);
}

TEST_F(BlockExchangeTest, ACancelledLoadEndsWithItsTransfers) {
  load(tokens(300));
  bring(1);
  exchange_.cancel(kFirst);
  EXPECT_EQ(endpoint_.cancelled.size(), 3U);
  bring(1);
  fail(ErrorCode::kCancelled);
  EXPECT_TRUE(news_.empty());
  fail(ErrorCode::kCancelled);
  EXPECT_EQ(news_.size(), 1U);
  EXPECT_EQ(exchange_.totals().failures, 0U);
}

// --- takes from elsewhere

struct BlockExchangeElsewhere : BlockExchangeTest {
  void load_with_elsewhere(const std::shared_ptr<const std::vector<Token>>& prompt) {
    exchange_.load(kFirst,
                   {.tokens = prompt,
                    .tenant = kTenant,
                    .elsewhere = EndpointAddress{.engine_id = "elsewhere"}},
                   0, news_);
  }
};

TEST_F(BlockExchangeElsewhere, TakesFromElsewhereWhatTheStoreLacks) {
  load_with_elsewhere(tokens(400));
  bring(2);  // The first one, and one of the others.
  fail(ErrorCode::kNotFound);
  for (int missing = 0; missing < 3; ++missing) {
    EXPECT_EQ(endpoint_.fetches.front().peer, "store");
    fail(ErrorCode::kNotFound);
  }
  ASSERT_EQ(endpoint_.fetches.size(), 1U) << "one block first";
  EXPECT_EQ(endpoint_.fetches[0].peer, "elsewhere");
  EXPECT_EQ(endpoint_.told.back().blocks[0].name,
            exchange_.sequences().names_of(*tokens(400), kTenant)[2]);
  bring(1);
  EXPECT_EQ(endpoint_.fetches.size(), 3U);
  bring(3);
  EXPECT_EQ(rows_loaded(), 384U);
  EXPECT_EQ(exchange_.totals().failures, 0U);
}

TEST_F(BlockExchangeElsewhere, TheStoreOfThisNodeIsToldOfWhatCameFromElsewhere) {
  load_with_elsewhere(tokens(193));
  fail(ErrorCode::kNotFound);
  bring(3);
  EXPECT_EQ(rows_loaded(), 192U);
  exchange_.tell_of_new_blocks();
  EXPECT_EQ(endpoint_.told_to, "store");
  EXPECT_EQ(endpoint_.told.back().kind, BlockNews::Kind::kHeld);
  EXPECT_EQ(endpoint_.told.back().owner, owner_of(kTenant));
  EXPECT_EQ(endpoint_.told.back().blocks.size(), 3U);
}

TEST_F(BlockExchangeElsewhere, AskedOnceAndNotAgainIfItKnowsNothing) {
  load_with_elsewhere(tokens(300));
  fail(ErrorCode::kNotFound);
  fail(ErrorCode::kNotFound);
  EXPECT_EQ(rows_loaded(), 0U);
  EXPECT_TRUE(endpoint_.fetches.empty());
}

TEST_F(BlockExchangeElsewhere, OneThatIsLateIsLeftAloneAndTheOwnStoreIsNot) {
  load_with_elsewhere(tokens(300));
  fail(ErrorCode::kNotFound);
  fail(ErrorCode::kTimeout);
  EXPECT_EQ(rows_loaded(), 0U);
  EXPECT_EQ(exchange_.totals().failures, 1U);
  load_with_elsewhere(tokens(300));
  fail(ErrorCode::kNotFound);
  EXPECT_TRUE(endpoint_.fetches.empty());
  EXPECT_EQ(rows_loaded(), 0U);
}

// --- gives

TEST_F(BlockExchangeTest, TellsOfEachNewBlockOnce) {
  const auto prompt = tokens(300);
  compute(kFirst, std::span(*prompt).first(150));
  exchange_.tell_of_new_blocks();
  exchange_.tell_of_new_blocks();
  ASSERT_EQ(endpoint_.told.size(), 1U);
  EXPECT_EQ(endpoint_.told[0].kind, BlockNews::Kind::kHeld);
  EXPECT_EQ(endpoint_.told[0].holder.engine_id, "worker");
  EXPECT_EQ(endpoint_.told[0].owner, owner_of(kTenant));
  EXPECT_EQ(endpoint_.told[0].blocks.size(), 2U);
  compute(kFirst, std::span(*prompt).subspan(150, 50));
  exchange_.tell_of_new_blocks();
  ASSERT_EQ(endpoint_.told.size(), 2U);
  EXPECT_EQ(endpoint_.told[1].blocks.size(), 1U);
  EXPECT_EQ(endpoint_.told[1].before, endpoint_.told[0].blocks[1].name);
}

TEST_F(BlockExchangeTest, LoadedBlocksAreNoNewsToTheStore) {
  load(tokens(300));
  bring(4);
  exchange_.tell_of_new_blocks();
  for (const BlockNews& news : endpoint_.told) {
    EXPECT_EQ(news.kind, BlockNews::Kind::kWanted);
  }
}

TEST_F(BlockExchangeTest, AStoreThatCameAnewIsToldOfAllBlocks) {
  compute(kFirst, *tokens(150));
  exchange_.tell_of_new_blocks();
  exchange_.use(EndpointAddress{.engine_id = "its successor"});
  exchange_.tell_of_new_blocks();
  ASSERT_EQ(endpoint_.told.size(), 2U);
  EXPECT_EQ(endpoint_.told[1].blocks.size(), 2U);
}

TEST_F(BlockExchangeTest, GivesABlockThatIsStillThere) {
  compute(kFirst, *tokens(150));
  exchange_.tell_of_new_blocks();
  const TransferId id = endpoint_.told[0].blocks[1].transfer;
  awaited(id);
  ASSERT_EQ(endpoint_.offers.size(), 1U);
  EXPECT_TRUE(endpoint_.offers[0].committed);
  const engine::KvWindow& window = engine_->kv_region(kFirst).windows[0];
  EXPECT_EQ(endpoint_.offers[0].source.windows[0].base,
            window.base + size_t{64} * window.row_bytes);
  EXPECT_FALSE(endpoint_.offers[0].terms.changed->load());
  EXPECT_TRUE(exchange_.take(kvtransfer::OfferDone{.id = id}, news_));
  EXPECT_EQ(exchange_.totals().tokens_given, 64U);
}

TEST_F(BlockExchangeTest, RefusesABlockWhoseRowsAreGone) {
  compute(kFirst, *tokens(150));
  exchange_.tell_of_new_blocks();
  exchange_.about_to_trim(kFirst, 0);
  engine_->clear(kFirst);
  awaited(endpoint_.told[0].blocks[0].transfer);
  EXPECT_TRUE(endpoint_.offers.empty());
  EXPECT_EQ(endpoint_.refused.size(), 1U);
}

TEST_F(BlockExchangeTest, RowsThatGoWhileTheyAreReadSpoilTheirBlockOnly) {
  compute(kFirst, *tokens(150));
  exchange_.tell_of_new_blocks();
  awaited(endpoint_.told[0].blocks[0].transfer);
  awaited(endpoint_.told[0].blocks[1].transfer);
  exchange_.about_to_trim(kFirst, 100);
  EXPECT_FALSE(endpoint_.offers[0].terms.changed->load());
  EXPECT_TRUE(endpoint_.offers[1].terms.changed->load());
}

TEST_F(BlockExchangeTest, EventsOfOtherTransfersAreNotItsOwn) {
  EXPECT_FALSE(exchange_.take(kvtransfer::FetchDone{.id = {.high = 1, .low = 2}}, news_));
  EXPECT_FALSE(exchange_.take(kvtransfer::OfferAwaited{.id = {.high = 1, .low = 2}}, news_));
  EXPECT_FALSE(exchange_.take(kvtransfer::OfferDone{.id = {.high = 1, .low = 2}}, news_));
}

}  // namespace
}  // namespace pdjob::worker
