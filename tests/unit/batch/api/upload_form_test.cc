#include "batch/api/upload_form.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

std::string part(const std::string& disposition, const std::string& bytes) {
  return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + bytes + "\r\n";
}
const std::string kPurpose = part("name=purpose", "batch");
const std::string kFile = part("name=file; filename=a.jsonl", "0123456789");

struct Uploaded {
  Result<Done, openai::ApiError> outcome = ok();
  std::string bytes;
  std::optional<int64_t> lifetime;
};

Uploaded read(const std::string& parts, uint64_t bytes_max = 10) {
  Uploaded result;
  UploadForm form("b", bytes_max, [&](std::string_view bytes) { result.bytes += bytes; });
  result.outcome = form.feed(parts + "--b--\r\n");
  if (result.outcome) {
    result.outcome = form.finish();
  }
  result.lifetime = form.lifetime();
  return result;
}

std::string param_of(const std::string& parts) {
  const Uploaded result = read(parts);
  return result.outcome ? "none" : result.outcome.error().param;
}

TEST(UploadForm, PassesTheFileOn) {
  const Uploaded result = read(kPurpose + kFile);
  EXPECT_TRUE(result.outcome);
  EXPECT_EQ(result.bytes, "0123456789");
  EXPECT_FALSE(result.lifetime);
}

TEST(UploadForm, TakesALifetime) {
  const std::string anchor = part("name=\"expires_after[anchor]\"", "created_at");
  const auto seconds = [](const char* number) {
    return part("name=\"expires_after[seconds]\"", number);
  };
  EXPECT_EQ(read(kPurpose + kFile + anchor + seconds("3600")).lifetime, 3600);
  EXPECT_EQ(param_of(kPurpose + kFile + anchor + seconds("3599")), "expires_after.seconds");
  EXPECT_EQ(param_of(kPurpose + kFile + anchor + seconds("2592001")), "expires_after.seconds");
  EXPECT_EQ(param_of(kPurpose + kFile + anchor), "expires_after.seconds");
  EXPECT_EQ(param_of(kPurpose + kFile + seconds("3600")), "expires_after.anchor");
}

TEST(UploadForm, RefusesATooLargeFileBeforeItsEnd) {
  UploadForm form("b", 9, [](std::string_view /*bytes*/) {});
  const auto fed = form.feed(kFile.substr(0, kFile.size() - 1) + std::string(100, 'x'));
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().status, 413);
}

TEST(UploadForm, NamesTheWrongField) {
  EXPECT_EQ(param_of(kFile), "purpose");
  EXPECT_EQ(param_of(kPurpose), "file");
  EXPECT_EQ(param_of(kPurpose + kFile + kFile), "file");
  EXPECT_EQ(param_of(part("name=purpose", "assistants") + kFile), "purpose");
  EXPECT_EQ(param_of(kPurpose + part("name=file", "x")), "file");
  EXPECT_EQ(param_of(kPurpose + part("name=file; filename=\"\"", "x")), "file");
  EXPECT_EQ(param_of(kPurpose + part("name=file; filename=\"\xff\"", "x")), "file");
  EXPECT_EQ(param_of(part("name=purpose", std::string(2000, 'x')) + kFile), "purpose");
}

}  // namespace
}  // namespace pdjob::batch
