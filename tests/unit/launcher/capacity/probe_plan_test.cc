#include "launcher/capacity/probe_plan.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Kind = WantedProbe::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Plays an engine: how long each probe takes. Returns the names in order.
std::vector<std::string> played(ProbePlan& plan, Duration budget,
                                const std::function<Duration(const WantedProbe&)>& engine) {
  std::vector<std::string> names;
  Duration left = budget;
  while (const auto probe = plan.next(left)) {
    const Duration wall = engine(*probe);
    left -= wall;
    names.push_back(probe->name());
    plan.took(wall);
    EXPECT_LT(names.size(), 1000U);
  }
  return names;
}

size_t count_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::count(names.begin(), names.end(), name));
}

TEST(ProbePlan, RepeatsEachProbeOfAFastEngine) {
  ProbePlan plan({.budget = seconds(120), .transfers = true});
  const auto names = played(plan, seconds(120), [](const auto&) { return milliseconds(20); });
  for (const char* const name : {"prompt 64", "prompt 16384", "prompt 256 x 4", "decode 64 at 64",
                                 "decode 8 at 8192", "decode 2 with prompt 256", "kv 8192"}) {
    EXPECT_EQ(count_of(names, name), 5U) << name;
  }
  EXPECT_DOUBLE_EQ(plan.share_done(), 1);
}

TEST(ProbePlan, KeepsItsBudgetOnASlowEngine) {
  Duration spent{};
  ProbePlan plan({.budget = seconds(30)});
  const auto names = played(plan, seconds(30), [&](const WantedProbe& probe) {
    const Duration wall = probe.requests * (probe.tokens * milliseconds(3) + milliseconds(300));
    spent += wall;
    return wall;
  });
  EXPECT_LE(spent, seconds(35));
  EXPECT_GE(count_of(names, "prompt 64"), 2U);
  EXPECT_GE(count_of(names, "decode 4 at 64"), 1U);
  EXPECT_EQ(count_of(names, "prompt 16384"), 0U);
}

TEST(ProbePlan, GoesNoFurtherThanTheEngine) {
  ProbePlan plan({.budget = seconds(120)});
  std::vector<WantedProbe> measured;
  while (const auto probe = plan.next(seconds(60))) {
    if (probe->tokens > 1000) {
      plan.was_too_long();
    } else if (probe->requests > 4) {
      plan.was_too_many();
    } else {
      measured.push_back(*probe);
      plan.took(milliseconds(10));
    }
  }
  ASSERT_FALSE(measured.empty());
  for (const WantedProbe& probe : measured) {
    EXPECT_LE(probe.tokens, 1000U);
    EXPECT_LE(probe.requests, 4U);
  }
}

TEST(ProbePlan, DoesNotRepeatWhatGaveNoFigure) {
  ProbePlan plan({.budget = seconds(120)});
  size_t useless = 0;
  while (const auto probe = plan.next(seconds(60))) {
    if (probe->kind == Kind::kMixed) {
      ++useless;
      plan.was_useless();
    } else {
      plan.took(milliseconds(10));
    }
  }
  EXPECT_EQ(useless, 2U);
}

TEST(ProbePlan, HasNothingWithoutTime) {
  ProbePlan plan({});
  EXPECT_FALSE(plan.next(Duration::zero()));
}

}  // namespace
}  // namespace pdjob::launcher
