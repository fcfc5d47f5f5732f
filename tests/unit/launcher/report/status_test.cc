#include "launcher/report/status.h"

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
            "decode-0  both    backoff     1m15s  -    0         http://127.0.0.1:40001  -\n"
            "decode-0 died: exit code 1; it is tried again\n");
  EXPECT_EQ(progress_line(job_),
            "0 of 2 ready, 1 registered, 1 backoff; decode-0 died: exit code 1");
}

TEST_F(StatusTest, JsonHoldsTheSameFacts) {
  const std::string json = status_json(view(seconds(2)));
  EXPECT_NE(json.find(R"("state":"starting")"), std::string::npos);
  EXPECT_NE(
      json.find(
          R"({"name":"decode-0","role":"both","state":"starting","suspected":false,"spare":false,"pid":102,"engine_id":"decode-0.n.2")"),
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

TEST_F(StatusTest, AStoreHasARowWithoutRequests) {
  Job job({{"router-0", net::Role::kRouter}, {"store-0", net::Role::kStore}}, JobTiming{}, "n");
  const JobView view{.plan = plan_, .job = job, .now = start_};
  job.step(Started{}, start_, effects_);
  job.step(MessageArrived{"store-0", net::Registered{.worker = {.engine_id = "store-0.n.2"}}},
           start_, effects_);
  EXPECT_NE(status_text(view).find(
                "\nstore-0   store   ready     0s   -    0         -                      -\n"),
            std::string::npos)
      << status_text(view);
}

class ServingStatusTest : public StatusTest {
 protected:
  ServingStatusTest() {
    for (const auto& [name, engine_id] :
         {std::pair("router-0", "router-0.n.1"), std::pair("decode-0", "decode-0.n.2")}) {
      tell(MessageArrived{name, net::Registered{.worker = {.engine_id = engine_id, .port = 8000}}});
    }
    for (size_t i = 0; i < effects_.size(); ++i) {
      if (const auto* probe = std::get_if<Probe>(&effects_[i])) {
        tell(ProbeSucceeded{.probe = probe->probe, .kv_bytes = 1});
      } else if (const auto* send = std::get_if<Send>(&effects_[i])) {
        if (const auto* told = std::get_if<net::Membership>(&send->message)) {
          tell(MessageArrived{send->peer, net::MembershipApplied{"router-0.n.1", told->version}});
        }
      }
    }
  }

  // The router's next heartbeat.
  void router_says(bool unusable, std::vector<net::WorkerTrouble> troubles = {}) {
    tell(MessageArrived{"router-0", net::HeartbeatSent{.name = "router-0",
                                                       .engine_id = "router-0.n.1",
                                                       .unusable = unusable,
                                                       .troubles = std::move(troubles)}});
  }
};

TEST_F(ServingStatusTest, AJobIsReadyOnlyWhileARouterCouldServeARequest) {
  ASSERT_EQ(job_.state(), JobState::kReady) << job_.waiting_for();
  EXPECT_EQ(job_state_text(job_), "ready");
  router_says(true);
  EXPECT_EQ(job_state_text(job_), "unavailable");
  EXPECT_FALSE(serves(job_));
  EXPECT_NE(status_text(view(seconds(1))).find("job demo: unavailable, "), std::string::npos);
  EXPECT_NE(status_text(view(seconds(1))).find("\nno usable pair of workers: "), std::string::npos);
  EXPECT_NE(status_json(view(seconds(1))).find(R"("state":"unavailable")"), std::string::npos);
  router_says(false);
  EXPECT_EQ(job_state_text(job_), "ready");
  tell(ProcessExited{{1}, "signal 9"});
  EXPECT_EQ(job_state_text(job_), "unavailable") << "no router serves";
}

TEST_F(ServingStatusTest, SaysWhichWorkerRequestsAvoidAndWhy) {
  router_says(false, {{"decode-0", "it answered 401: it refuses the key of its requests"}});
  EXPECT_TRUE(
      status_text(view(seconds(1)))
          .ends_with("\nrequests avoid decode-0: it answered 401: it refuses the key of its "
                     "requests\n"))
      << status_text(view(seconds(1)));
  EXPECT_NE(status_json(view(seconds(1))).find(R"("troubles":[{"worker":"decode-0","why":"it )"),
            std::string::npos);
  router_says(false, {{.worker = "decode-0", .why = "it fails", .partner = "prefill-0"}});
  EXPECT_TRUE(status_text(view(seconds(1)))
                  .ends_with("\nrequests avoid decode-0 with prefill-0: it fails\n"))
      << status_text(view(seconds(1)));
  EXPECT_NE(status_json(view(seconds(1))).find(R"("partner":"prefill-0")"), std::string::npos);
}

TEST_F(StatusTest, SaysWhyAProcessIsNotThere) {
  tell(ProcessExited{{2}, "exit code 1"});
  const std::string text = status_text(view(Duration::zero()));
  EXPECT_TRUE(text.ends_with("\ndecode-0 died: exit code 1; it is tried again\n")) << text;
  const Demand demand{.cores = 1, .role = "decode", .model = "m", .labels = {{"disk", "fast"}}};
  Job job({{"router-0", net::Role::kRouter},
           {"decode-0", net::Role::kDecode, "m", demand},
           {"decode-1", net::Role::kDecode, "m", demand}},
          JobTiming{}, "n", {.nodes = {{.name = "a", .cores = 4, .memory_bytes = 1 << 30}}});
  const std::string waiting = status_text({.plan = plan_, .job = job});
  EXPECT_NE(waiting.find("\ndecode-0, decode-1: each waits for a node with room: "),
            std::string::npos)
      << waiting;
  EXPECT_NE(waiting.find("disk"), std::string::npos) << waiting;
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
