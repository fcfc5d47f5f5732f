#include "batch/api/files_api.h"

#include "tests/unit/batch/api/batch_api_fixture.h"

namespace pdjob::batch {
namespace {

using FilesApiTest = BatchApiTest;

TEST_F(FilesApiTest, AFileComesBackByteForByteAlsoAfterARestart) {
  const std::string content = rows(1000);
  const std::string id = member(upload(content).body, "id");
  ASSERT_TRUE(id.starts_with("file-"));
  EXPECT_EQ(ask("GET", "/v1/files/" + id + "/content").body, content);
  open();
  EXPECT_EQ(ask("GET", "/v1/files/" + id + "/content").body, content);
}

TEST_F(FilesApiTest, OfAnotherTenantIsNotThere) {
  const std::string id = member(upload("x").body, "id");
  for (const std::string rest : {"", "/content"}) {
    EXPECT_EQ(ask("GET", "/v1/files/" + id + rest, {.tenant = "bob"}).status, 404) << rest;
  }
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id, {.tenant = "bob"}).status, 404);
  EXPECT_EQ(ask("GET", "/v1/files", {.tenant = "bob"}).body.find(id), std::string::npos);
  EXPECT_EQ(ask("GET", "/v1/files/" + id).status, 200);
}

TEST_F(FilesApiTest, ADeletedFileIsGone) {
  const std::string id = member(upload("x").body, "id");
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id).status, 200);
  EXPECT_EQ(ask("GET", "/v1/files/" + id).status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id).status, 404);
  open();
  EXPECT_EQ(ask("GET", "/v1/files/" + id + "/content").status, 404);
}

TEST_F(FilesApiTest, TooLargeAndTooManyAreRefused) {
  config.file_bytes_max = 100;
  config.files_max = 1;
  open();
  EXPECT_EQ(upload(std::string(101, 'x')).status, 413);
  EXPECT_EQ(upload(std::string(100, 'x')).status, 200);
  EXPECT_EQ(member(upload("x").body, "code"), "too_many_files");
  EXPECT_EQ(upload("x", "bob").status, 200) << "each tenant has its own limit";
}

TEST_F(FilesApiTest, AnUploadThatIsRefusedLeavesNothingOnTheDisk) {
  config.file_bytes_max = 100;
  open();
  upload(std::string(101, 'x'));
  EXPECT_TRUE(
      net::run_until(loop, [&] { return std::filesystem::is_empty(config.dir + "/files"); }));
}

TEST_F(FilesApiTest, AFullDiskTakesNoMoreUntilFilesAreDeleted) {
  config.disk_bytes_max = 100;
  open();
  const std::string id = member(upload(std::string(60, 'x')).body, "id");
  EXPECT_EQ(upload(std::string(60, 'x')).status, 503);
  ASSERT_EQ(ask("DELETE", "/v1/files/" + id).status, 200);
  EXPECT_EQ(upload(std::string(60, 'x')).status, 200);
}

TEST_F(FilesApiTest, BadFormsAreRefused) {
  EXPECT_EQ(ask("POST", "/v1/files", {.body = "x"}).status, 400);
  EXPECT_EQ(
      ask("POST", "/v1/files", {.body = "", .type = "multipart/form-data; boundary=XX"}).status,
      400);
  EXPECT_EQ(
      ask("POST", "/v1/files", {.body = "--XX--\r\n", .type = "multipart/form-data; boundary=XX"})
          .status,
      400);
}

TEST_F(FilesApiTest, ListsHavePagesAndPurposes) {
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(member(upload("x").body, "id"));
  }
  const std::string page = ask("GET", "/v1/files?limit=2&order=asc").body;
  EXPECT_LT(page.find(ids[0]), page.find(ids[1]));
  EXPECT_EQ(page.find(ids[2]), std::string::npos);
  EXPECT_NE(page.find("\"has_more\":true"), std::string::npos);
  EXPECT_NE(ask("GET", "/v1/files?order=asc&after=" + ids[1]).body.find(ids[2]), std::string::npos);
  EXPECT_EQ(ask("GET", "/v1/files?purpose=batch_output").body.find("file-"), std::string::npos);
  EXPECT_EQ(ask("GET", "/v1/files?after=file-unknown").status, 404);
}

}  // namespace
}  // namespace pdjob::batch
