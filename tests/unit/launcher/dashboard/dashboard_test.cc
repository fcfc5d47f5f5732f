#include "launcher/dashboard/dashboard.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(Dashboard, IsAPageAStyleAndScripts) {
  for (const char* path : {"/", "/dashboard.css", "/dashboard.js", "/dashboard_words.js",
                           "/dashboard_requests.js", "/dashboard_drawings.js"}) {
    const auto file = dashboard_file(path);
    ASSERT_TRUE(file) << path;
    EXPECT_FALSE(file->text.empty());
    EXPECT_TRUE(file->content_type.starts_with("text/"));
  }
  EXPECT_FALSE(dashboard_file("/dashboard"));
  EXPECT_FALSE(dashboard_file("/page.js"));
}

// The policy allows the page's own files only, so none of these would work.
TEST(Dashboard, NeedsNothingFromElsewhereAndNoCodeInThePage) {
  const std::string page(dashboard_file("/")->text);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("style="), std::string::npos);
  EXPECT_EQ(page.find("<style"), std::string::npos);
  EXPECT_EQ(page.find(" on"), page.find(" once")) << "handlers of events";
  EXPECT_NE(page.find("<script src=\"/dashboard.js\" defer></script>"), std::string::npos);
  EXPECT_EQ(std::string(dashboard_file("/dashboard.css")->text).find("url("), std::string::npos);
}

TEST(Dashboard, WritesTextAsTextOnly) {
  const std::string code(dashboard_file("/dashboard.js")->text);
  for (const char* way :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
        "setAttribute('on", "setAttribute('style", "http:", "https:"}) {
    EXPECT_EQ(code.find(way), std::string::npos) << way;
  }
}

}  // namespace
}  // namespace pdjob::launcher
