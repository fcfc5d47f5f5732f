#include "engine/kv_size.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/unit/engine/test_model.h"

namespace pdjob::engine {
namespace {

TEST(KvSize, IsWhatTheEngineTakes) {
  if (test_model().empty()) {
    GTEST_SKIP() << kNoTestModel;
  }
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    const auto engine = open_engine(
        {.model_path = test_model(), .kv_type = type, .sequences = 1, .tokens_per_sequence = 256});
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    const auto bytes = kv_bytes_per_token(test_model(), type);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    EXPECT_EQ(*bytes, (*engine)->facts().kv_bytes_per_token);
  }
}

TEST(KvSize, IsUnknownOfAFileThatIsNoModel) {
  EXPECT_FALSE(kv_bytes_per_token("/nonexistent.gguf", KvType::kF16).has_value());
  const auto path = std::filesystem::temp_directory_path() /
                    ("pdjob_no_size_" + std::to_string(getpid()) + ".gguf");
  std::ofstream(path) << "GGUF but not really";
  EXPECT_EQ(kv_bytes_per_token(path.string(), KvType::kF16).error().code, ErrorCode::kCorrupt);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pdjob::engine
