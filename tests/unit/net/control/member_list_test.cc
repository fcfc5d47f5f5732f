#include "net/control/member_list.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::net {
namespace {

WorkerEntry entry(const std::string& name, int incarnation = 1) {
  return {.name = name, .engine_id = name + "." + std::to_string(incarnation)};
}

std::vector<std::string> ids(const std::vector<WorkerEntry>& entries) {
  std::vector<std::string> ids;
  for (const WorkerEntry& one : entries) {
    ids.push_back(one.engine_id);
  }
  return ids;
}
using Ids = std::vector<std::string>;

TEST(MemberList, TakesAllAndThenWhatChanges) {
  MemberList list;
  ASSERT_TRUE(list.take(
      {.version = 4, .workers = {entry("a"), entry("b"), entry("c")}, .routers = {entry("r")}}));
  ASSERT_TRUE(list.take(
      {.version = 6, .since = 4, .workers = {entry("b", 2), entry("d")}, .left = {{"a", "a.1"}}}));
  EXPECT_EQ(ids(list.workers()), (Ids{"b.2", "c.1", "d.1"}));
  EXPECT_EQ(ids(list.routers()), Ids{"r.1"});
  EXPECT_EQ(list.version(), 6U);
  ASSERT_TRUE(list.take({.version = 7, .workers = {entry("e")}}));
  EXPECT_EQ(ids(list.workers()), Ids{"e.1"});
  EXPECT_TRUE(list.routers().empty());
}

TEST(MemberList, KeepsStoresApartFromWorkers) {
  MemberList list;
  ASSERT_TRUE(
      list.take({.version = 1, .workers = {entry("a")}, .stores = {entry("s"), entry("t")}}));
  ASSERT_TRUE(
      list.take({.version = 2, .since = 1, .stores = {entry("s", 2)}, .left = {{"t", "t.1"}}}));
  EXPECT_EQ(ids(list.stores()), Ids{"s.2"});
  EXPECT_EQ(ids(list.workers()), Ids{"a.1"});
  ASSERT_TRUE(list.take({.version = 3, .workers = {entry("a")}}));
  EXPECT_TRUE(list.stores().empty());
}

TEST(MemberList, TakesNothingOldAndNothingThatFollowsWhatItDoesNotKnow) {
  MemberList list;
  EXPECT_FALSE(list.take({.version = 3, .since = 2, .workers = {entry("a")}}));
  ASSERT_TRUE(list.take({.version = 5, .workers = {entry("a")}}));
  EXPECT_FALSE(list.take({.version = 4, .workers = {entry("b")}}));
  EXPECT_FALSE(list.take({.version = 8, .since = 6, .workers = {entry("b")}}));
  EXPECT_EQ(ids(list.workers()), Ids{"a.1"});
  EXPECT_EQ(list.version(), 5U);
  // A repeated message is accepted again, also if a part of it was known before.
  ASSERT_TRUE(list.take({.version = 6, .since = 3, .workers = {entry("a", 2), entry("b")}}));
  ASSERT_TRUE(list.take({.version = 6, .since = 3, .workers = {entry("a", 2), entry("b")}}));
  EXPECT_EQ(ids(list.workers()), (Ids{"a.2", "b.1"}));
}

// Messages and confirmations are lost at random. In the end the reader knows all members.
TEST(MemberList, KnowsWhoIsThereWhateverIsLost) {
  Random random(3);
  MemberList list;
  std::map<std::string, WorkerEntry> members;
  std::map<std::string, uint64_t> changed_in;
  uint64_t version = 0;
  uint64_t confirmed = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    const std::string name(1, static_cast<char>('a' + random.below(8)));
    changed_in[name] = ++version;
    if (random.chance(0.5)) {
      members[name] = entry(name, turn);
    } else {
      members.erase(name);
    }
    Membership told{.version = version, .since = random.chance(0.1) ? 0 : confirmed};
    for (const auto& [changed, when] : changed_in) {
      if (const auto member = members.find(changed); when > told.since && member != members.end()) {
        told.workers.push_back(member->second);
      } else if (when > told.since && told.since > 0) {
        told.left.push_back({.name = changed, .engine_id = ""});
      }
    }
    if (random.chance(0.3) || !list.take(told)) {
      continue;
    }
    confirmed = random.chance(0.3) ? confirmed : version;
    Ids known = ids(list.workers());
    std::ranges::sort(known);
    Ids there;
    for (const auto& [member, one] : members) {
      there.push_back(one.engine_id);
    }
    std::ranges::sort(there);
    ASSERT_EQ(known, there) << turn;
  }
  EXPECT_GT(confirmed, 4900U);
}

}  // namespace
}  // namespace pdjob::net
