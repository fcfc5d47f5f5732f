#include "openai/kserve/kserve_path.h"

#include <gtest/gtest.h>

namespace pdjob::openai {
namespace {

TEST(KservePath, NamesAModelAndPerhapsItsVersion) {
  const auto infer = parse_kserve_path("/v2/models/org%2Fm/versions/1/infer");
  ASSERT_TRUE(infer);
  EXPECT_EQ(infer->end, KserveEnd::kInfer);
  EXPECT_EQ(infer->model, "org/m");
  EXPECT_EQ(infer->version, "1");
  EXPECT_EQ(parse_kserve_path("/v2/models/m/infer")->version, "");
  EXPECT_EQ(parse_kserve_path("/v2/models/m")->end, KserveEnd::kModel);
  EXPECT_EQ(parse_kserve_path("/v2/models/m/versions/2")->version, "2");
  EXPECT_EQ(parse_kserve_path("/v2/models/m/ready")->end, KserveEnd::kModelReady);
}

TEST(KservePath, OfTheServerNamesNone) {
  EXPECT_EQ(parse_kserve_path("/v2")->end, KserveEnd::kServer);
  EXPECT_EQ(parse_kserve_path("/v2/health/live")->end, KserveEnd::kLive);
  EXPECT_EQ(parse_kserve_path("/v2/health/ready")->end, KserveEnd::kReady);
}

TEST(KservePath, OfAnythingElseIsNone) {
  for (const char* const path :
       {"/v2/models", "/v2/health", "/v2/models/m/config", "/v2/models/m/versions",
        "/v2/models/m/infer/x", "/v2/x/m/infer"}) {
    EXPECT_FALSE(parse_kserve_path(path)) << path;
  }
}

}  // namespace
}  // namespace pdjob::openai
