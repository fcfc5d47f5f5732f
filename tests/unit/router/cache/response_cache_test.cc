#include "router/cache/response_cache.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::router {
namespace {

using std::chrono::seconds;

struct ResponseCacheTest : testing::Test {
  ResponseCacheTest() {
    config.bytes_max = 1 << 20;
    config.ttl = seconds(60);
    config.similarity.threshold = 0.9;
  }
  ResponseCache& cache() {
    if (!made) {
      made.emplace(config);
    }
    return *made;
  }
  void store(const std::string& digest, const std::string& body, uint32_t tenant = 0,
             std::optional<ResponseCache::Meaning> meaning = {}) {
    cache().store({tenant, digest}, {"application/json", body, writer}, std::move(meaning), now);
  }
  // Returns the body found; "" if there is none.
  std::string find(const std::string& digest, uint32_t tenant = 0) {
    const auto found = cache().find({tenant, digest}, now);
    return found ? found->reply.body : "";
  }
  std::string find_similar(std::vector<float> vector, const std::string& context = "c",
                           uint32_t tenant = 0) {
    const auto found = cache().find_similar(tenant, {context, std::move(vector)}, now);
    return found ? found->reply.body : "";
  }
  static ResponseCache::Meaning meaning(std::vector<float> vector,
                                        const std::string& context = "c") {
    return {context, std::move(vector)};
  }

  CacheConfig config;
  std::optional<ResponseCache> made;
  Instant now{std::chrono::hours(1)};
  WorkerId writer{1};
};

TEST_F(ResponseCacheTest, GivesAnAnswerAgainWithItsAge) {
  EXPECT_EQ(find("a"), "");
  store("a", "answer");
  now += seconds(7);
  const auto found = cache().find({0, "a"}, now);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reply.body, "answer");
  EXPECT_EQ(found->reply.content_type, "application/json");
  EXPECT_EQ(found->age, seconds(7));
}

TEST_F(ResponseCacheTest, KeepsTenantsApart) {
  store("a", "of 1", 1, meaning({1, 0}));
  EXPECT_EQ(find("a", 2), "");
  EXPECT_EQ(find_similar({1, 0}, "c", 2), "");
  store("a", "of 2", 2);
  EXPECT_EQ(find("a", 1), "of 1");
  EXPECT_EQ(find("a", 2), "of 2");
}

TEST_F(ResponseCacheTest, ForgetsWhatIsTooOldAndNotWhatIsUsed) {
  store("a", "first");
  now += seconds(30);
  store("b", "second");
  EXPECT_EQ(find("a"), "first");
  now += seconds(30);
  EXPECT_EQ(find("a"), "") << "to be used makes it no younger";
  EXPECT_EQ(find("b"), "second");
  EXPECT_EQ(cache().entries(), 1U);
  now += seconds(30);
  EXPECT_EQ(find("b"), "");
  EXPECT_EQ(cache().bytes(), 0U);
}

TEST_F(ResponseCacheTest, ReplacesAnAnswer) {
  store("a", "old");
  now += seconds(59);
  store("a", "new");
  now += seconds(59);
  EXPECT_EQ(find("a"), "new");
  EXPECT_EQ(cache().entries(), 1U);
}

TEST_F(ResponseCacheTest, DropsWhatWasUsedLongestAgoWhenItIsFull) {
  const std::string body(1000, 'x');
  store("a", body);
  const uint64_t one = cache().bytes();
  made.reset();
  config.bytes_max = 3 * one;
  for (const char* digest : {"a", "b", "c"}) {
    store(digest, body);
  }
  EXPECT_EQ(find("a"), body);
  store("d", body);
  EXPECT_EQ(find("b"), "");
  for (const char* digest : {"a", "c", "d"}) {
    EXPECT_EQ(find(digest), body) << digest;
  }
  EXPECT_EQ(cache().bytes(), 3 * one);
  store("e", std::string(3 * one, 'x'));
  EXPECT_EQ(find("e"), "");
  EXPECT_EQ(cache().entries(), 3U) << "what never fits pushes nobody out";
}

TEST_F(ResponseCacheTest, FindsTheNearestQuestionIfItIsNearEnough) {
  store("a", "east", 0, meaning({2, 0, 0}));
  store("b", "north", 0, meaning({0, 0.5F, 0}));
  EXPECT_EQ(find_similar({1, 0.1F, 0}), "east");
  EXPECT_EQ(find_similar({0.1F, 1, 0}), "north");
  EXPECT_EQ(find_similar({1, 1, 0}), "");
  EXPECT_EQ(find_similar({-1, 0, 0}), "");
  EXPECT_EQ(find_similar({1, 0, 0}, "another context"), "");
  EXPECT_EQ(find_similar({1, 0}), "") << "of another embedder";
  now += seconds(60);
  EXPECT_EQ(find_similar({1, 0, 0}), "");
  EXPECT_EQ(cache().vectors(), 0U);
}

TEST_F(ResponseCacheTest, TakesNoVectorWithoutADirection) {
  store("a", "zero", 0, meaning({0, 0}));
  store("b", "nan", 0, meaning({NAN, 1}));
  EXPECT_EQ(find_similar({0, 0}), "");
  EXPECT_EQ(find_similar({NAN, 1}), "");
  EXPECT_EQ(cache().vectors(), 0U);
  EXPECT_EQ(find("a"), "zero");
}

TEST_F(ResponseCacheTest, HasABoundOfVectors) {
  config.similarity.vectors_max = 2;
  store("a", "east", 0, meaning({1, 0, 0}));
  store("b", "north", 0, meaning({0, 1, 0}));
  EXPECT_EQ(find("a"), "east");
  store("c", "up", 0, meaning({0, 0, 1}));
  EXPECT_EQ(cache().vectors(), 2U);
  EXPECT_EQ(find_similar({0, 1, 0}), "");
  EXPECT_EQ(find_similar({1, 0, 0}), "east");
  EXPECT_EQ(find_similar({0, 0, 1}), "up");
}

TEST_F(ResponseCacheTest, GoesWithTheWorkerThatWroteIt) {
  WorkerTable workers;
  const net::WorkerEntry entry{
      .name = "d0", .engine_id = "1", .role = net::Role::kDecode, .host = "h", .port = 1};
  workers.replace({entry});
  writer = workers.find("d0")->id;
  store("a", "of this incarnation", 0, meaning({1, 0}));
  workers.replace({entry});
  cache().keep_writers(workers);
  EXPECT_EQ(find("a"), "of this incarnation");
  net::WorkerEntry next = entry;
  next.engine_id = "2";
  workers.replace({next});
  cache().keep_writers(workers);
  EXPECT_EQ(find("a"), "");
  EXPECT_EQ(find_similar({1, 0}), "");
  EXPECT_EQ(cache().bytes(), 0U);
}

// Compares with a slow and obvious cache.
TEST_F(ResponseCacheTest, FindsWhatASearchOfAllFinds) {
  struct Known {
    std::string digest;
    std::vector<float> vector;
  };
  config.similarity.vectors_max = 50;
  std::vector<Known> known;  // The most recently used is last.
  Random random(7);
  const auto vector = [&random] {
    std::vector<float> drawn(19);
    for (float& one : drawn) {
      one = static_cast<float>(random.unit() - 0.3);
    }
    return drawn;
  };
  const auto cosine = [](const std::vector<float>& a, const std::vector<float>& b) {
    double dot = 0;
    double aa = 0;
    double bb = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      dot += double(a[i]) * b[i];
      aa += double(a[i]) * a[i];
      bb += double(b[i]) * b[i];
    }
    return dot / std::sqrt(aa * bb);
  };
  for (int i = 0; i < 1000; ++i) {
    const std::string digest = std::to_string(random.below(100));
    std::erase_if(known, [&](const Known& one) { return one.digest == digest; });
    known.push_back({digest, vector()});
    if (known.size() > config.similarity.vectors_max) {
      known.erase(known.begin());
    }
    store(digest, digest, 0, meaning(known.back().vector));
    const std::vector<float> wanted = vector();
    auto nearest = std::ranges::max_element(
        known, {}, [&](const Known& one) { return cosine(one.vector, wanted); });
    const bool near = cosine(nearest->vector, wanted) >= config.similarity.threshold;
    ASSERT_EQ(find_similar(wanted), near ? nearest->digest : "");
    if (near) {
      std::rotate(nearest, nearest + 1, known.end());
    }
    ASSERT_EQ(cache().vectors(), known.size());
  }
}

TEST(WholeAnswer, SaysHowEachChoiceEnded) {
  const std::string json = "application/json";
  EXPECT_TRUE(is_whole_answer(json, R"({"choices":[{"text":"a","finish_reason":"stop"}]})"));
  EXPECT_TRUE(is_whole_answer(json, R"({"choices":[{"finish_reason": "length"}]})"));
  EXPECT_FALSE(
      is_whole_answer(json, R"({"choices":[{"finish_reason":"stop"},{"finish_reason":"abort"}]})"));
  EXPECT_FALSE(is_whole_answer(json, R"({"error":{"message":"no"}})"));
  EXPECT_FALSE(is_whole_answer(json, R"({"text":"\"finish_reason\":\"stop\""})"));
  EXPECT_FALSE(is_whole_answer("text/html", R"("finish_reason":"stop")"));
}

TEST(WholeAnswer, HasTheEndOfAStream) {
  const std::string type = "text/event-stream; charset=utf-8";
  const std::string events =
      "data: {\"choices\":[{\"text\":\"\\\"error\\\":\",\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\n";
  EXPECT_TRUE(is_whole_answer(type, events + "data: [DONE]\n\n"));
  EXPECT_TRUE(is_whole_answer(type, events + "data: [DONE]\r\n\r\n"));
  EXPECT_FALSE(is_whole_answer(type, events));
  EXPECT_FALSE(is_whole_answer(type, ""));
  EXPECT_FALSE(
      is_whole_answer(type, events + "data: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n"));
}

}  // namespace
}  // namespace pdjob::router
