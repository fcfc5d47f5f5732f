#include "launcher/status.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

class StatusTest : public testing::Test {
 protected:
  StatusTest()
      : job_({{"router-0", net::Role::kRouter}, {"decode-0", net::Role::kBoth}}, JobTiming{}, "n") {
    plan_.job = "demo";
    plan_.models = {{.name = "tiny"}};
    plan_.rows = {{.name = "router-0",
                   .role = net::Role::kRouter,
                   .node = "local",
                   .host = "127.0.0.1",
                   .port = 8000},
                  {.name = "decode-0",
                   .role = net::Role::kBoth,
                   .node = "local",
                   .cores = 1,
                   .host = "127.0.0.1",
                   .port = 40001}};
    tell(Started{});
    tell(Spawned{{1}, 101});
    tell(Spawned{{2}, 102});
  }

  void tell(const Event& event) { job_.step(event, start_, effects_); }
  JobView view(Duration later) const {
    return {.plan = plan_,
            .job = job_,
            .launcher_pid = 100,
            .url = "http://127.0.0.1:8000",
            .now = start_ + later};
  }

  LaunchPlan plan_;
  Job job_;
  const Instant start_{seconds(1000)};
  std::vector<Effect> effects_;
};

TEST_F(StatusTest, TextIsATableOfProcesses) {
  tell(MessageArrived{"router-0",
                      net::Registered{.worker = {.engine_id = "router-0.n.1", .port = 8000}}});
  tell(ProcessExited{{2}, "exit code 1"});
  EXPECT_EQ(status_text(view(seconds(75))),
            "job demo: starting, http://127.0.0.1:8000, launcher pid 100\n"
            "NAME      ROLE    STATE       FOR    PID  RESTARTS  URL                     LOAD\n"
            "router-0  router  registered  1m15s  101  0         http://127.0.0.1:8000   0 "
            "running, 0 queued\n"
            "decode-0  both    backoff     1m15s  -    0         http://127.0.0.1:40001  -\n");
  EXPECT_EQ(progress_line(job_),
            "0 of 2 ready, 1 registered, 1 backoff; decode-0 died: exit code 1");
}

TEST_F(StatusTest, JsonHoldsTheSameFacts) {
  const std::string json = status_json(view(seconds(2)));
  EXPECT_NE(json.find(R"("state":"starting")"), std::string::npos);
  EXPECT_NE(
      json.find(
          R"({"name":"decode-0","role":"both","state":"starting","suspected":false,"pid":102,"engine_id":"decode-0.n.2")"),
      std::string::npos)
      << json;
}

TEST_F(StatusTest, AStarvedProcessIsToldOfByEachForm) {
  tell(MessageArrived{"decode-0", net::Registered{.worker = {.engine_id = "decode-0.n.2"}}});
  const net::HeartbeatSent heartbeat{
      .name = "decode-0", .engine_id = "decode-0.n.2", .starved_permille = 430};
  job_.step(MessageArrived{"decode-0", heartbeat}, start_ + seconds(2), effects_);
  const std::string text = status_text(view(seconds(2)));
  EXPECT_NE(text.find("registered (starved)"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\ndecode-0 is starved: 43 % of its time it waited for a core\n"))
      << text;
  const std::string json = status_json(view(seconds(2)));
  EXPECT_NE(json.find(R"("starved":true,"starved_share":0.43)"), std::string::npos) << json;
  const std::string metrics = job_metrics(view(seconds(2)));
  EXPECT_NE(metrics.find(R"(pdjob_process_starved_ratio{name="decode-0",role="both"} 0.43)"),
            std::string::npos)
      << metrics;
}

TEST_F(StatusTest, OfSeveralModelsItSaysWhoseEachWorkerIs) {
  plan_.models.push_back({.name = "large"});
  Job job({{"router-0", net::Role::kRouter, ""}, {"tiny-decode-0", net::Role::kBoth, "tiny"}},
          JobTiming{}, "n");
  const JobView view{.plan = plan_, .job = job};
  EXPECT_NE(status_text(view).find("NAME           MODEL  ROLE    STATE "), std::string::npos)
      << status_text(view);
  EXPECT_NE(status_text(view).find("\nrouter-0       -      router  waiting"), std::string::npos);
  EXPECT_NE(status_text(view).find("\ntiny-decode-0  tiny   both    waiting"), std::string::npos);
  const std::string json = status_json(view);
  EXPECT_NE(json.find(R"("models":["tiny","large"])"), std::string::npos) << json;
  EXPECT_NE(json.find(R"({"name":"router-0","role":"router","state")"), std::string::npos);
  EXPECT_NE(json.find(R"({"name":"tiny-decode-0","role":"both","model":"tiny")"),
            std::string::npos);
}

TEST_F(StatusTest, ShowsHowMuchSlowerThanItsPeersAWorkerIs) {
  JobView seen = view(seconds(0));
  seen.slowness = [](std::string_view name) { return name == "decode-0" ? 3.25 : 1.4; };
  EXPECT_NE(status_text(seen).find("starting (3.2 x slower)"), std::string::npos)
      << status_text(seen);
  EXPECT_EQ(status_text(seen).find("1.4 x"), std::string::npos);
  EXPECT_NE(status_json(seen).find(R"("slowness":3.25)"), std::string::npos) << status_json(seen);
  EXPECT_NE(job_metrics(seen).find(R"(pdjob_process_slowness{name="decode-0",role="both"} 3.25)"),
            std::string::npos);
}

TEST_F(StatusTest, MetricsCountRestartsOnceEach) {
  EXPECT_NE(job_metrics(view(seconds(0))).find("pdjob_job_ready 0"), std::string::npos);
  tell(ProcessExited{{2}, "exit code 1"});
  job_.step(TimePassed{}, start_ + seconds(1), effects_);
  for (int scrape = 0; scrape < 2; ++scrape) {
    EXPECT_NE(job_metrics(view(seconds(0)))
                  .find(R"(pdjob_process_restarts_total{name="decode-0",role="both"} 1)"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace pdjob::launcher
