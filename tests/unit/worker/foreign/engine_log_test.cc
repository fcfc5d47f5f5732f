#include "worker/foreign/engine_log.h"

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::worker {
namespace {

using Lines = std::vector<std::string>;
constexpr Instant kNow{std::chrono::seconds(10)};

TEST(EngineLog, LinesComeWhole) {
  EngineLog log;
  EXPECT_EQ(log.take("one\ntw", kNow), (Lines{"one"}));
  EXPECT_EQ(log.take("o\r\nthree", kNow), (Lines{"two"}));
  EXPECT_EQ(log.finish(kNow), (Lines{"three"}));
  EXPECT_EQ(log.last_lines(), (Lines{"one", "two", "three"}));
}

TEST(EngineLog, AProgressBarIsOneLine) {
  EngineLog log;
  EXPECT_EQ(log.take("\rloading 1 %\rloading 2 %\rloaded\n", kNow), (Lines{"loaded"}));
}

TEST(EngineLog, ATerminalObeysNothingOfIt) {
  EngineLog log;
  EXPECT_EQ(log.take("\x1b[2Jred\x07\n", kNow), (Lines{" [2Jred "}));
}

TEST(EngineLog, ALongLineIsCut) {
  EngineLog log;
  const Lines lines = log.take(std::string(1'000'000, 'x') + "\n", kNow);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines.front().size(), limits::kEngineLogLineBytesMax + 3);
}

TEST(EngineLog, DullLinesAreLeftOut) {
  EngineLog log({"\"GET /health"});
  EXPECT_EQ(log.take("a\n1.2.3.4 \"GET /health HTTP/1.1\" 200\nb\n", kNow), (Lines{"a", "b"}));
  EXPECT_EQ(log.last_lines(), (Lines{"a", "b"}));
}

TEST(EngineLog, LinesThatComeTooFastAreDroppedAndCounted) {
  EngineLog log;
  const std::string line(1023, 'x');
  const size_t burst = limits::kEngineLogBurstBytes / 1024;
  std::string flood;
  for (size_t i = 0; i < burst + 5; ++i) {
    flood += line + "\n";
  }
  EXPECT_EQ(log.take(flood, kNow).size(), burst);
  EXPECT_EQ(log.take("later\n", kNow + std::chrono::seconds(1)),
            (Lines{"(5 lines came too fast and were dropped)", "later"}));
  EXPECT_LE(log.last_lines().size(), 60U);
}

}  // namespace
}  // namespace pdjob::worker
