#include "router/relay/request_timings.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Instant at(int ms) { return Instant(seconds(100) + milliseconds(ms)); }

void expect_phases(const RequestMoments& moments, int queue, int prefill, int kv, int decode) {
  const RequestPhases phases = phases_of(moments);
  EXPECT_EQ(phases.queue, milliseconds(queue));
  EXPECT_EQ(phases.prefill, milliseconds(prefill));
  EXPECT_EQ(phases.kv, milliseconds(kv));
  EXPECT_EQ(phases.decode, milliseconds(decode));
  EXPECT_EQ(phases.queue + phases.prefill + phases.kv + phases.decode,
            moments.ended - moments.arrived);
}

TEST(RequestPhases, OfAStreamEndAtItsFirstBytes) {
  const RequestMoments moments{.arrived = at(0),
                               .legs_began = at(10),
                               .prefilled = at(52),
                               .first_bytes = at(55),
                               .ended = at(100),
                               .kv_visible = milliseconds(5),
                               .stream = true};
  expect_phases(moments, 10, 40, 5, 45);
  // Between the prefill and the first token it waits at the decode worker.
  RequestMoments waited = moments;
  waited.prefilled = at(30);
  expect_phases(waited, 10, 20, 25, 45);
  // The prefill leg is answered late.
  RequestMoments late = moments;
  late.prefilled = at(70);
  expect_phases(late, 10, 40, 5, 45);
}

TEST(RequestPhases, OfAWholeReplyEndWithTheKv) {
  expect_phases({.arrived = at(0),
                 .legs_began = at(10),
                 .prefilled = at(50),
                 .first_bytes = at(99),
                 .ended = at(100),
                 .kv_visible = milliseconds(5)},
                10, 40, 5, 45);
}

TEST(RequestPhases, WithoutAPrefillWorkerHaveNoKv) {
  expect_phases({.arrived = at(0),
                 .legs_began = at(10),
                 .first_bytes = at(40),
                 .ended = at(100),
                 .stream = true},
                10, 30, 0, 60);
  expect_phases({.arrived = at(0), .legs_began = at(10), .first_bytes = at(99), .ended = at(100)},
                10, 0, 0, 90);
}

TEST(RequestPhases, OfARequestThatNeverRanAreItsQueue) {
  expect_phases({.arrived = at(0), .ended = at(30)}, 30, 0, 0, 0);
}

TEST(RequestPhases, AreNeverNegativeWhateverAWorkerSays) {
  expect_phases({.arrived = at(0),
                 .legs_began = at(10),
                 .prefilled = at(20),
                 .first_bytes = at(25),
                 .ended = at(30),
                 .kv_visible = minutes(5),
                 .stream = true},
                10, 0, 15, 5);
}

RequestTiming timing(uint64_t number, int wait_ms, Instant ended) {
  return {.number = number,
          .outcome = "ok",
          .ended = ended,
          .phases = {.prefill = milliseconds(wait_ms)}};
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(RequestTimings, AreTheNewestAndTheSlowest) {
  RequestTimings timings;
  EXPECT_EQ(timings.json(at(0), 1000), R"({"requests":[]})");
  for (int i = 0; i < 1000; ++i) {
    timings.add(timing(1 + static_cast<uint64_t>(i), i == 7 ? 5000 : 1, at(i)));
  }
  const std::string text = timings.json(at(1000), 1000);
  EXPECT_EQ(count(text, "\"number\""), RequestTimings::kNewestMax + RequestTimings::kSlowestMax);
  EXPECT_TRUE(text.starts_with(
      R"({"requests":[{"number":1000,"request_id":"","tenant":"","prefill":"","decode":"",)"
      R"("attempts":0,"status":0,"outcome":"ok","stream":false,"ended_at":1000,"queue_us":0,)"
      R"("prefill_us":1000,"kv_us":0,"decode_us":0},{"number":999,)"))
      << text;
  EXPECT_NE(text.find(R"("number":8,)"), std::string::npos) << "the slowest is kept";
  EXPECT_EQ(count(text, R"("number":1000,)"), 1U);
}

TEST(RequestTimings, SlowOnesOfLongAgoAreNotShown) {
  RequestTimings timings;
  timings.add(timing(1, 5000, at(0)));
  for (int i = 0; i < 100; ++i) {
    timings.add(timing(2 + static_cast<uint64_t>(i), 1, at(1)));
  }
  EXPECT_EQ(count(timings.json(at(1), 1000), R"("number":1,)"), 1U);
  EXPECT_EQ(count(timings.json(at(1) + minutes(11), 1000), R"("number":1,)"), 0U);
}

TEST(RequestTimings, NamesAreEscaped) {
  RequestTimings timings;
  RequestTiming evil = timing(1, 1, at(0));
  evil.tenant = "a\"<b>\n";
  timings.add(evil);
  EXPECT_NE(timings.json(at(0), 1).find(R"("tenant":"a\"<b>\n")"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::router
