#include "launcher/look/top.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StatusPage page_of(const net::WorkerLoad& load, const std::string& engine_id = "decode-0.n.2") {
  return {.job = "demo",
          .state = "ready",
          .url = "http://127.0.0.1:8000",
          .launcher_pid = 100,
          .processes = {{.name = "router-0", .role = "router", .state = "ready"},
                        {.name = "decode-0",
                         .role = "decode",
                         .state = "ready",
                         .engine_id = engine_id,
                         .restarts = 1,
                         .in_state = seconds(75),
                         .load = load}}};
}

TEST(Top, FirstLookHasNoRates) {
  Top top;
  EXPECT_EQ(
      top.look(page_of({.requests_running = 3,
                        .requests_queued = 4,
                        .kv_rows_used = 5,
                        .kv_rows_max = 20,
                        .tokens_computed = 600}),
               Instant(seconds(50))),
      "job demo: ready, http://127.0.0.1:8000\n"
      "2 of 2 processes serve; requests: 3 running, 4 queued; TTFT -, ITL -, - tokens/s out\n\n"
      "NAME      ROLE    STATE  FOR    RUNNING  QUEUED  KV   BUSY  TTFT  ITL  TOKENS/S  "
      "RESTARTS\n"
      "router-0  router  ready  0s     -        -       -    -     -     -    -         0\n"
      "decode-0  decode  ready  1m15s  3        4       25%  -     -     -    -         1\n"
      "\n"
      "MEAN WAIT  QUEUE  PREFILL  KV\n"
      "router-0   -      -        -\n");
}

TEST(Top, SaysWhatIsInTheBackground) {
  const std::string text =
      Top().look(page_of({.requests_running = 3, .background_requests = 14}), Instant(seconds(50)));
  EXPECT_NE(text.find("requests: 3 running, 0 queued, 14 in the background; TTFT"),
            std::string::npos)
      << text;
}

TEST(Top, SecondLookHasWhatHappenedBetween) {
  Top top;
  top.look(page_of({.tokens_computed = 600,
                    .busy_us = 1000000,
                    .ttft_sum_us = 5000000,
                    .ttft_count = 9,
                    .itl_sum_us = 100000,
                    .itl_count = 10}),
           Instant(seconds(50)));
  const std::string text = top.look(page_of({.tokens_computed = 1600,
                                             .busy_us = 2000000,
                                             .ttft_sum_us = 7500000,
                                             .ttft_count = 11,
                                             .itl_sum_us = 900000,
                                             .itl_count = 110}),
                                    Instant(seconds(52)));
  EXPECT_NE(text.find("TTFT 1.25 s, ITL 8.0 ms, 51 tokens/s out\n"), std::string::npos) << text;
  EXPECT_NE(text.find("50%   1.25 s  8.0 ms  500       1\n"), std::string::npos) << text;
}

TEST(Top, NewIncarnationCountsAnew) {
  Top top;
  top.look(page_of({.tokens_computed = 600}), Instant(seconds(50)));
  const std::string text =
      top.look(page_of({.tokens_computed = 20}, "decode-0.n.3"), Instant(seconds(51)));
  EXPECT_NE(text.find("0       -   -     -     -    -         1\n"), std::string::npos) << text;
}

TEST(Top, ShowsTheMeanWaitsOfRoutersAndOfEnginesThatTellThem) {
  StatusPage page = page_of({.phases = {.queue_us = 90, .kv_us = 2'340'000}});
  page.processes[0].load.phases = {.queue_us = 1, .prefill_us = 81'234, .kv_us = 12'000};
  page.processes.push_back({.name = "decode-1", .role = "decode", .state = "ready"});
  page.processes.push_back(
      {.name = "decode-2", .role = "decode", .state = "backoff", .load = page.processes[1].load});
  const std::string text = Top().look(page, Instant(seconds(50)));
  EXPECT_TRUE(
      text.ends_with("\n\n"
                     "MEAN WAIT  QUEUE   PREFILL  KV\n"
                     "router-0   0.0 ms  81.2 ms  12.0 ms\n"
                     "decode-0   0.1 ms  -        2.34 s\n"))
      << text;
}

TEST(Top, AStarvedProcessHasALine) {
  StatusPage page = page_of({});
  page.processes[1].starved = true;
  page.processes[1].starved_share = 0.43;
  const std::string text = Top().look(page, Instant(seconds(50)));
  EXPECT_NE(text.find("ready (starved)"), std::string::npos) << text;
  EXPECT_NE(text.find("\ndecode-0 is starved: 43 % of its time it waited for a core\n"),
            std::string::npos)
      << text;
}

TEST(Jobs, EachHasALine) {
  EXPECT_EQ(jobs_text({page_of({.requests_running = 3}),
                       {.job = "night", .state = "its launcher does not answer"}}),
            "JOB    STATE                         PREFILL  DECODE  BOTH  ROUTERS  RUNNING  "
            "LAUNCHER  URL\n"
            "demo   ready                         -        1/1     -     1/1      3        pid "
            "100   http://127.0.0.1:8000\n"
            "night  its launcher does not answer  -        -       -     -        0        -      "
            "   -\n");
  EXPECT_EQ(jobs_text({}), "no job runs here\n");
  EXPECT_EQ(jobs_json({{.job = "night", .state = "ready", .url = "u", .launcher_pid = 7}}),
            "[{\"job\":\"night\",\"state\":\"ready\",\"url\":\"u\",\"launcher_pid\":7,"
            "\"processes\":[]}]\n");
}

}  // namespace
}  // namespace pdjob::launcher
