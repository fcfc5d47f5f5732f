#include "batch/api/files_api.h"

#include "common/limits.h"
#include "tests/unit/batch/api/batch_api_fixture.h"
#include "tests/unit/batch/no_room.h"

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
  for (const std::string& path : {"/v1/files/" + id, "/v1/files/" + id + "/content"}) {
    EXPECT_EQ(ask("GET", path, {.tenant = "bob"}).status, 404) << path;
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

TEST_F(FilesApiTest, NothingIsToldThatACrashCouldTakeBack) {
  const std::string path = "/v1/files/" + member(upload("x").body, "id");
  const NoRoom full;
  const auto send = [&](const char* method, const std::string& target) {
    net::HttpCall call;
    call.to = {"127.0.0.1", server->http().port()};
    call.method = method;
    call.target = target;
    const std::string lines = "Authorization: Bearer " + std::string(kKey) + "\r\n" +
                              std::string(openai::header::kBatchTenant) + ": alice\r\n";
    call.header_lines = lines;
    net::fetch(loop, *client, std::move(call), size_t{1} << 20,
               [&](const Result<net::HttpReply>& got) {
                 ADD_FAILURE() << method << (got ? got->status : 0);
               });
  };
  send("DELETE", path);
  ASSERT_TRUE(net::run_until(loop, [&] { return !broken.empty(); }));
  send("GET", path);
  send("GET", "/v1/files");
  net::run_for(loop, std::chrono::milliseconds(200));
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

TEST_F(FilesApiTest, TheLastPlacesForUploadsAreForTenantsThatHaveNone) {
  std::vector<std::unique_ptr<net::RawClient>> slow;
  const auto begin_upload = [&](const std::string& tenant) {
    slow.push_back(std::make_unique<net::RawClient>(loop, server->http().port()));
    slow.back()->send("POST /v1/files HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " +
                      std::string(kKey) + "\r\n" + std::string(openai::header::kBatchTenant) +
                      ": " + tenant +
                      "\r\nContent-Type: multipart/form-data; boundary=XX\r\n"
                      "Content-Length: 1000\r\n\r\n--XX\r\n");
    const std::string alive = "pdjob_batch_uploads_alive " + std::to_string(slow.size()) + "\n";
    return net::run_until(
        loop, [&] { return ask("GET", "/metrics").body.find(alive) != std::string::npos; });
  };
  for (const char* const tenant : {"alice", "bob", "carol"}) {
    for (size_t i = 0; i < limits::kUploadsMax / 4; ++i) {
      ASSERT_TRUE(begin_upload(tenant));
    }
  }
  EXPECT_EQ(upload("x", "dave").status, 200);
  ASSERT_TRUE(begin_upload("dave"));
  EXPECT_EQ(upload("x", "dave").status, 503);
  EXPECT_EQ(upload("x", "erin").status, 200);
}

TEST_F(FilesApiTest, ATenantsBytesAreLimitedAndOthersMayGoOn) {
  config.tenant_bytes_max = 100;
  open();
  const std::string id = member(upload(std::string(60, 'x')).body, "id");
  EXPECT_EQ(member(upload(std::string(60, 'x')).body, "code"), "storage_limit_exceeded");
  EXPECT_EQ(upload(std::string(60, 'x'), "bob").status, 200);
  ASSERT_EQ(ask("DELETE", "/v1/files/" + id).status, 200);
  EXPECT_EQ(upload(std::string(60, 'x')).status, 200);
}

TEST_F(FilesApiTest, TheInputOfABatchStaysItsTenantsBytesWhenItIsDeleted) {
  router.answer = [](const net::HttpRequest& /*request*/) { return std::pair(200, std::string()); };
  config.tenant_bytes_max = 1'000'000;  // Of the file alone, and less than with a ledger.
  open();
  std::string one = row(1);
  one.insert(one.find("\"a\"") + 1, std::string(990'000, 'x'));
  const std::string file = member(upload(one).body, "id");
  const std::string batch = member(create(file).body, "id");
  wait_status(batch, "in_progress");
  ASSERT_EQ(ask("DELETE", "/v1/files/" + file).status, 200);
  EXPECT_TRUE(net::run_until(loop, [&] {
    return member(upload("x").body, "code") == "storage_limit_exceeded";
  })) << "otherwise a tenant fills the disk with files that are deleted";
}

TEST_F(FilesApiTest, AnAlmostFullFileSystemTakesNoMore) {
  config.disk_free_min = uint64_t{1} << 60;
  open();
  EXPECT_TRUE(net::run_until(loop, [&] { return upload("x").status == 503; }));
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
