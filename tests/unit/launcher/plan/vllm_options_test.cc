#include "launcher/plan/vllm_options.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Texts = std::vector<std::string>;

TEST(VllmOptions, AShellTextIsSplitAsAShellSplitsIt) {
  EXPECT_EQ(*shell_words("  a 'b c'  \"d \\\" e\"f \\\n  g\\ h '' "),
            (Texts{"a", "b c", "d \" ef", "g h", ""}));
  EXPECT_EQ(*shell_words(" \n "), Texts{});
  EXPECT_EQ(*shell_words("a\\"), Texts{"a\\"});
  EXPECT_EQ(shell_words("a 'b").error().message, "has a ' without its end");
}

TEST(VllmOptions, ALaterOptionTakesThePlaceOfAnEarlierOne) {
  VllmOptions options;
  options.set_param("max_num_seqs", "1");
  options.set_param("dtype", "auto");
  VllmOptions later;
  later.set_words({"--max-num-seqs", "8"});
  options.merge(later);
  EXPECT_EQ(options.args(), (Texts{"--max-num-seqs", "8", "--dtype=auto"}));
}

TEST(VllmOptions, ABooleanIsAFlag) {
  VllmOptions options;
  options.set_param("enforce_eager", "true");
  options.set_param("enable_prefix_caching", "false");
  EXPECT_EQ(options.args(), (Texts{"--enforce-eager", "--no-enable-prefix-caching"}));
}

TEST(VllmOptions, WordsMayBeFlagsValuesAndLists) {
  VllmOptions options;
  options.set_words(
      {"first", "-q", "fp8", "--seed", "-1", "--flag", "--x_y=1=2", "--names", "a", "b"});
  EXPECT_EQ(options.args(), (Texts{"first", "-q", "fp8", "--seed", "-1", "--flag", "--x-y=1=2",
                                   "--names", "a", "b"}));
  EXPECT_EQ(options.value("--seed"), "-1");
  EXPECT_EQ(options.take("--flag"), "");
  EXPECT_EQ(options.take("--flag"), std::nullopt);
}

}  // namespace
}  // namespace pdjob::launcher
