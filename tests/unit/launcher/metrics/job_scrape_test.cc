#include "launcher/metrics/job_scrape.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/http/http_server.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

// A process that answers with its metrics if it is shown its key.
class Scraped final : public net::HttpHandler {
 public:
  Scraped(net::EventLoop& loop, std::string key)
      : key_(std::move(key)), server_(*net::HttpServer::open(loop, *this, {})) {}

  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    ++asked;
    const bool knows = request.header("authorization") == (key_.empty() ? "" : "Bearer " + key_);
    server_->reply(id, knows && request.path == "/metrics" ? 200 : 401, "text/plain",
                   "# TYPE a counter\na 1\n");
  }
  void on_client_gone(net::ExchangeId /*id*/) override {}
  ScrapedProcess as(const char* name) const {
    return {.name = name,
            .role = "decode",
            .address = {.host = "127.0.0.1", .port = server_->port()},
            .key = key_};
  }

  int asked = 0;

 private:
  const std::string key_;
  std::unique_ptr<net::HttpServer> server_;
};

class JobScrapeTest : public testing::Test {
 protected:
  Result<std::string> await(const std::function<void(JobScrape::Then)>& ask) {
    std::optional<Result<std::string>> got;
    ask([&](Result<std::string> page) {
      got = std::move(page);
      loop_.stop();
    });
    while (!got) {
      loop_.run();
    }
    return *got;
  }

  net::EventLoop loop_;
  std::vector<ScrapedProcess> processes_;
  JobScrape scrape_{loop_, [this] { return processes_; }};
};

TEST_F(JobScrapeTest, OnePageHasAllProcessesAndSaysWhoDidNotAnswer) {
  Scraped keyed(loop_, "secret");
  Scraped open(loop_, "");
  const ScrapedProcess gone = Scraped(loop_, "").as("d1");
  processes_ = {keyed.as("d0"), open.as("router-0"), gone};
  const auto page = await([&](auto then) { scrape_.all("own 7\n", then); });
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->starts_with("# TYPE a counter\n")) << *page;
  for (const char* line :
       {"a{process=\"d0\"} 1\n", "a{process=\"router-0\"} 1\n", "own{process=\"launcher\"} 7\n",
        "pdjob_process_scraped{process=\"d0\"} 1\n", "pdjob_process_scraped{process=\"d1\"} 0\n"}) {
    EXPECT_NE(page->find(line), std::string::npos) << line << *page;
  }
  EXPECT_EQ(page->find("a{process=\"d1\"}"), std::string::npos);
}

TEST_F(JobScrapeTest, ThoseWhoAskAtOnceShareTheRead) {
  Scraped process(loop_, "");
  processes_ = {process.as("d0")};
  int answers = 0;
  int refusals = 0;
  for (int i = 0; i < 100; ++i) {
    scrape_.all("", [&](const Result<std::string>& page) {
      ++(page ? answers : refusals);
      if (answers == 64) {
        loop_.stop();
      }
    });
  }
  loop_.run();
  EXPECT_EQ(process.asked, 1);
  EXPECT_EQ(answers, 64);
  EXPECT_EQ(refusals, 36);
}

TEST_F(JobScrapeTest, AJobWithoutProcessesHasTheLaunchersOwn) {
  const auto page = await([&](auto then) { scrape_.all("own 7\n", then); });
  EXPECT_EQ(page.value(), "own{process=\"launcher\"} 7\n");
}

TEST_F(JobScrapeTest, OneProcessIsReadAsItIs) {
  Scraped process(loop_, "secret");
  processes_ = {process.as("d0")};
  EXPECT_EQ(await([&](auto then) { scrape_.one("d0", then); }).value(), "# TYPE a counter\na 1\n");
  EXPECT_EQ(await([&](auto then) { scrape_.one("d1", then); }).error().code,
            ErrorCode::kInvalidArgument);
  processes_.front().key = "wrong";
  EXPECT_EQ(await([&](auto then) { scrape_.one("d0", then); }).error().code,
            ErrorCode::kUnavailable);
}

TEST(Discovery, NamesEachProcessAtTheLaunchersAddress) {
  EXPECT_EQ(
      discovery_json("demo", "localhost:1", "https", {{.name = "d0", .role = "decode"}}),
      R"([{"targets":["localhost:1"],"labels":{"pdjob_job":"demo","process":"launcher","role":"launcher","__scheme__":"https","__metrics_path__":"/metrics"}},)"
      R"({"targets":["localhost:1"],"labels":{"pdjob_job":"demo","process":"d0","role":"decode","__scheme__":"https","__metrics_path__":"/metrics/process","__param_name":"d0"}}])");
}

}  // namespace
}  // namespace pdjob::launcher
