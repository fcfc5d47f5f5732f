#include "common/log.h"

#include <functional>
#include <regex>
#include <string>

#include <gtest/gtest.h>

namespace pdjob::log {
namespace {

std::string written(const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  act();
  return testing::internal::GetCapturedStderr();
}

// Returns the line without its time, or all of it if it has none.
std::string without_time(const std::string& line) {
  static const std::regex kTime(R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z )");
  return std::regex_replace(line, kTime, "@ ");
}

TEST(Log, NamesTheProcessOnceItHasStarted) {
  EXPECT_EQ(without_time(written([] { info("early"); })), "@ info early\n");
  start("decode-0", Level::kInfo);
  EXPECT_EQ(without_time(written([] { warn("late"); })), "@ warning decode-0 late\n");
  EXPECT_EQ(without_time(written([] { error("bad"); })), "@ error decode-0 bad\n");
}

TEST(Log, WritesNothingBelowItsLevel) {
  start("router", Level::kWarn);
  EXPECT_EQ(written([] {
              debug("a");
              info("b");
            }),
            "");
}

TEST(Log, KeepsOneEventOnOneLine) {
  start("router", Level::kDebug);
  EXPECT_EQ(without_time(written([] { debug("a\nb\x1b[31m {} %v"); })),
            "@ debug router a b [31m {} %v\n");
  EXPECT_LT(written([] { info(std::string(100'000, 'x')); }).size(), 9000U);
}

}  // namespace
}  // namespace pdjob::log
