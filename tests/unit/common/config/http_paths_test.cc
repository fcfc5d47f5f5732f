#include "common/config/http_paths.h"

#include <gtest/gtest.h>

namespace pdjob {
namespace {

std::string errors_of(const std::string& text) {
  ConfigReader in = ConfigReader::parse("f.yaml", text);
  std::vector<std::string> paths;
  in.field("routes", paths, {"Paths."});
  check_engine_paths(in, "routes", paths);
  return in.finish();
}

TEST(HttpPaths, ArePathsOfEngines) {
  EXPECT_EQ(errors_of("routes: [/v1/rerank, /generative_scoring, /v1/audio/translations]"), "");
  for (const char* wrong : {"rerank", "/", "/a?b", "/a b", "/a//b", "/pdjob/workers", "/a{b}"}) {
    EXPECT_NE(
        errors_of("routes: [\"" + std::string(wrong) + "\"]")
            .find("must be paths such as /v1/rerank, of at most 64 letters, digits and _-./, and "
                  "not below /pdjob, got " +
                  std::string(wrong)),
        std::string::npos)
        << wrong;
  }
}

TEST(HttpPaths, AreBounded) {
  std::string many = "routes: [/a";
  for (size_t i = 0; i < kEnginePathsMax; ++i) {
    many += ", /b" + std::to_string(i);
  }
  EXPECT_NE(errors_of(many + "]").find("must be at most 32 paths, got 33"), std::string::npos);
  EXPECT_NE(errors_of("routes: [/" + std::string(kEnginePathBytesMax, 'a') + "]"), "");
}

}  // namespace
}  // namespace pdjob
