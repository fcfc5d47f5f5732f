#include "launcher/look/plain_text.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(PlainText, NothingSteersTheTerminal) {
  EXPECT_EQ(plain_text("a\x1b[2J\r\a\x7f b"), "a?[2J??? b");
  EXPECT_EQ(plain_text("a\xc2\x9b"
                       "2J"),
            "a??2J");
}

TEST(PlainText, LinesTabsAndLettersStay) {
  EXPECT_EQ(plain_text("a\tb\n\xc3\xa9 \xe2\x86\x92"), "a\tb\n\xc3\xa9 \xe2\x86\x92");
}

}  // namespace
}  // namespace pdjob::launcher
