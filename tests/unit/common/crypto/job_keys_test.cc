#include "common/crypto/job_keys.h"

#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/random.h"

namespace pdjob {
namespace {

TEST(Blake2b, IsThatOfItsSpecification) {
  // From `b2sum -l 256`, without a purpose or a key.
  const Digest digest = Blake2b("").add("abc").finish();
  EXPECT_EQ(std::to_integer<int>(digest[0]), 0xbd);
  EXPECT_EQ(std::to_integer<int>(digest[1]), 0xdd);
  EXPECT_EQ(std::to_integer<int>(digest[31]), 0x19);
}

TEST(RootKey, EachPurposeAndNameHasItsOwn) {
  const RootKey root = RootKey::make();
  std::set<std::string> keys = {root.derive("worker http", "prefill-0"),
                                root.derive("worker http", "prefill-1"),
                                root.derive("worker httpprefill-0"),
                                root.derive("worker http"),
                                root.derive("probes", "prefill-0"),
                                RootKey::make().derive("worker http", "prefill-0"),
                                RootKey::of("a text").derive("worker http", "prefill-0")};
  EXPECT_EQ(keys.size(), 7U);
  EXPECT_EQ(root.derive("probes"), root.derive("probes"));
  EXPECT_EQ(RootKey::of("a text").derive("p"), RootKey::of("a text").derive("p"));
  EXPECT_EQ(root.derive("probes").size(), 64U);
  EXPECT_TRUE(is_key(root.derive("probes")));
}

TEST(KeyCheck, OpensToItsKeysAndToNothingElse) {
  const KeyCheck door({"the first key of it", "", "the-second-key"});
  EXPECT_FALSE(door.open_to_all());
  EXPECT_TRUE(door.opens("Bearer the first key of it"));
  EXPECT_TRUE(door.opens("bearer the-second-key"));
  for (const char* shown : {"", "Bearer ", "Bearer the-second-ke", "Bearer the-second-keyy",
                            "the-second-key", "Basic the-second-key", "Bearer  the-second-key"}) {
    EXPECT_FALSE(door.opens(shown)) << shown;
  }
}

TEST(KeyCheck, WithoutKeysIsOpenToAll) {
  const KeyCheck door({"", ""});
  EXPECT_TRUE(door.open_to_all());
  EXPECT_TRUE(door.opens(""));
}

TEST(AuthorizationLine, OfNoKeyIsNone) {
  EXPECT_EQ(authorization_line(""), "");
  EXPECT_EQ(authorization_line("k"), "Authorization: Bearer k\r\n");
}

TEST(IsKey, NothingThatBreaksAHeaderIs) {
  EXPECT_TRUE(is_key("0123456789abcdef"));
  EXPECT_FALSE(is_key("0123456789abcde"));
  EXPECT_FALSE(is_key("0123456789abcdef\r\nx: y"));
  EXPECT_FALSE(is_key("0123456789 abcdef"));
  EXPECT_FALSE(is_key(std::string(513, 'a')));
}

TEST(ReadKeyFile, TakesOneLineOfAFileThatOnlyItsOwnerReads) {
  const std::string path = testing::TempDir() + "pdjob-key-" + std::to_string(entropy());
  std::ofstream(path) << "0123456789abcdef\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_key_file(path).value(), "0123456789abcdef");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_NE(read_key_file(path).error().message.find("chmod 600"), std::string::npos);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "two lines of it\nare none\n";
  EXPECT_NE(read_key_file(path).error().message.find("openssl rand"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_EQ(read_key_file(path).error().code, ErrorCode::kInvalidArgument);
}

TEST(Entropy, NeverRepeatsAndTellsNothingOfTheNext) {
  std::set<uint64_t> drawn;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t word = entropy();
    EXPECT_TRUE(drawn.insert(word).second);
    // After a 0 the whole chain of SplitMix64 could be predicted.
    EXPECT_NE(word, 0U);
  }
}

}  // namespace
}  // namespace pdjob
