// The HTTP API of a decode worker over a real endpoint. Beside it is a prefill worker whose rows
// arrive damaged.
#include "worker/api/openai_api.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "decode/decode_worker.h"
#include "engine/fake_engine.h"
#include "net/http/http_client.h"
#include "net/loop/event_loop.h"
#include "openai/replies/told_tokens.h"
#include "prefill/prefill_worker.h"
#include "tests/support/fault_transport.h"
#include "tests/unit/worker/watched_engine.h"
#include "worker/core/engine_thread.h"

namespace pdjob::worker {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr EngineSize kSize{.sequences = 2, .rows_per_sequence = 128, .batch_tokens = 32};

std::unique_ptr<engine::Engine> fake_engine(
    std::chrono::microseconds per_token = std::chrono::microseconds::zero()) {
  return *engine::open_engine({.kind = engine::EngineKind::kFake,
                               .sequences = kSize.sequences,
                               .tokens_per_sequence = kSize.rows_per_sequence,
                               .batch_tokens = kSize.batch_tokens,
                               .fake_delay_per_token = per_token});
}

// Offers prompts on request. Each transfer has one flipped bit.
class DamagingPrefill {
 public:
  DamagingPrefill()
      : engine_(fake_engine()),
        thread_(*engine_, prefill::core_factory({})(kSize), kPatience, [](const OutputBatch&) {}) {
    endpoint_ = *kvtransfer::KvEndpoint::start(
        {.engine_id = "p0.n.1",
         .fingerprint = {{"model", "fake"}},
         .sink =
             [this](kvtransfer::EndpointEvent event) {
               thread_.on_endpoint_event(std::move(event));
             },
         .open_transport = kvtransfer::with_faults([](TransferId) {
           return kvtransfer::FaultPlan{.kind = kvtransfer::FaultKind::kFlipBit, .bit = 9};
         })});
    thread_.start(*endpoint_);
  }
  ~DamagingPrefill() { thread_.stop(); }

  void offer(TransferId transfer, const std::vector<Token>& prompt) {
    GenerationRequest request{
        .id = RequestId{transfer.low}, .prompt = prompt, .kv = KvMode::kOffer};
    request.stop.max_tokens = 1;
    request.samplers.push_back(*engine::open_sampler(*engine_, {}, prompt, request.stop));
    request.transfer = transfer;
    ASSERT_TRUE(thread_.submit(std::move(request)));
  }
  const kvtransfer::EndpointAddress& address() const { return endpoint_->address(); }

 private:
  std::unique_ptr<engine::Engine> engine_;
  EngineThread thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
};

class OpenaiApiTest : public testing::Test {
 protected:
  explicit OpenaiApiTest(std::chrono::microseconds per_token = std::chrono::microseconds::zero(),
                         const std::string& weight_version = "")
      : engine_(std::make_unique<WatchedEngine>(fake_engine(per_token))),
        thread_(*engine_, decode::core_factory({})(kSize), kPatience, [this](OutputBatch batch) {
          loop_.post([this, batch = std::move(batch)]() mutable { api_->take(std::move(batch)); });
        }) {
    endpoint_ = *kvtransfer::KvEndpoint::start({.engine_id = "d0.n.2",
                                                .fingerprint = {{"model", "fake"}},
                                                .sink = [this](kvtransfer::EndpointEvent event) {
                                                  thread_.on_endpoint_event(std::move(event));
                                                }});
    thread_.start(*endpoint_);
    api_ = std::make_unique<OpenaiApi>(
        OpenaiApiOptions{.name = "d0",
                         .role = net::Role::kDecode,
                         .kv = endpoint_->address(),
                         .weight_version = weight_version,
                         .kv_standstill = [this] { return endpoint_->standstill(); }},
        *engine_, thread_, metrics_, [this](auto answer) {
          endpoint_->report_pairs([this, answer](auto pairs) {
            loop_.post([this, answer, pairs] { answer(pairs, endpoint_->stats()); });
          });
        });
    server_ = *net::HttpServer::open(loop_, *api_, {});
    api_->attach(*server_, loop_);
    client_ = net::HttpClient::create(loop_);
  }
  ~OpenaiApiTest() override { thread_.stop(); }

  void turn_until(const std::function<bool()>& done) {
    const Instant patience = real_now() + kPatience;
    while (!done() && real_now() < patience) {
      EXPECT_EQ(ask("GET", "/health").status, 200);
    }
    EXPECT_TRUE(done());
  }

  struct Reply {
    int status = 0;
    std::string head;
    std::string body;
    std::vector<std::string> told = {};  // Notes of interim responses.
  };
  struct Call final : net::HttpCallHandler {
    explicit Call(net::EventLoop& to_stop) : loop(to_stop) {}
    void on_interim(net::CallId, const net::HttpReplyHead& head) override {
      EXPECT_EQ(head.status, 103);
      reply.told.emplace_back(head.header("x-pdjob-tokens"));
    }
    void on_head(net::CallId, const net::HttpReplyHead& head) override {
      reply.status = head.status;
      reply.head = head.raw;
    }
    void on_body(net::CallId, std::string_view raw) override { reply.body += raw; }
    void on_end(net::CallId) override { end(); }
    void on_error(net::CallId, const Error&) override { end(); }
    void end() {
      ended = true;
      loop.stop();
    }
    net::EventLoop& loop;
    Reply reply;
    bool ended = false;
  };
  net::CallId start(Call& call, std::string_view method, std::string_view path, std::string body,
                    std::string_view header_lines = "") {
    return client_->start({.to = {"127.0.0.1", server_->port()},
                           .method = method,
                           .target = path,
                           .header_lines = header_lines,
                           .body = std::move(body),
                           .head_timeout = kPatience},
                          call);
  }
  void await(const Call& call) {
    while (!call.ended) {
      loop_.run();
    }
  }
  Reply ask(std::string_view method, std::string_view path, std::string body = "",
            std::string_view header_lines = "") {
    Call call(loop_);
    start(call, method, path, std::move(body), header_lines);
    await(call);
    return call.reply;
  }
  Reply fetch(TransferId transfer, const kvtransfer::EndpointAddress& peer) {
    return ask("POST", "/v1/completions",
               R"({"prompt":[1,2,3,4,5],"max_tokens":2,"kv_transfer_params":)"
               R"({"do_remote_prefill":true,"transfer_id":")" +
                   transfer.to_string() + R"(","remote_engine_id":")" + peer.engine_id +
                   R"(","remote_host":")" + peer.host + R"(","remote_port":)" +
                   std::to_string(peer.port) + R"(,"remote_unix_path":")" + peer.unix_path +
                   R"(","remote_host_id":")" + peer.host_id + R"("}})");
  }

  net::EventLoop loop_;
  Metrics metrics_;
  std::unique_ptr<WatchedEngine> engine_;
  std::unique_ptr<OpenaiApi> api_;
  EngineThread thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<net::HttpClient> client_;
};

TEST_F(OpenaiApiTest, TellsTheRouterOfAPairWhoseKvComesDamagedAgainAndAgain) {
  DamagingPrefill prefill;
  prefill.offer({0, 1}, {1, 2, 3, 4, 5});
  const Reply first = fetch({0, 1}, prefill.address());
  EXPECT_EQ(first.status, 502);
  EXPECT_NE(first.body.find("do not match their digest"), std::string::npos) << first.body;
  EXPECT_EQ(first.head.find("x-pdjob-kv-suspect"), std::string::npos) << "once is chance";
  prefill.offer({0, 2}, {1, 2, 3, 4, 5});
  const Reply second = fetch({0, 2}, prefill.address());
  EXPECT_EQ(second.status, 502);
  EXPECT_NE(second.head.find("x-pdjob-kv-suspect: p0.n.1\r\n"), std::string::npos) << second.head;

  const Reply metrics = ask("GET", "/metrics");
  EXPECT_NE(metrics.body.find("pdjob_kv_link_digest_errors_total{"
                              R"(direction="receives",peer="p0.n.1",transport="shm"} 2)"),
            std::string::npos)
      << metrics.body;
  const Reply links = ask("GET", "/pdjob/links");
  EXPECT_EQ(links.body.find(
                R"({"name":"d0","engine_id":"d0.n.2","role":"decode","links":[{"peer":"p0.n.1")"),
            0U)
      << links.body;
  EXPECT_NE(links.body.find(R"("digest_errors":2,"suspect":true)"), std::string::npos);
}

// --- streams that go on at another worker

struct ContinuedStream : OpenaiApiTest {
  using OpenaiApiTest::OpenaiApiTest;
  // A chunk of a stream: its event, and the tokens that it tells the router.
  struct Chunk {
    std::string told;
    std::string event;
  };
  std::vector<Chunk> stream(const std::string& fields, const std::string& resume = "") {
    const Reply reply =
        ask("POST", "/v1/completions",
            R"({"prompt":[1,2,3,4,5],"stream":true,"stream_options":{"include_usage":true},)" +
                fields + (resume.empty() ? "" : R"(,"pdjob_resume":)" + resume) + "}",
            "x-request-id: r1\r\nx-pdjob-continue: 1700000000\r\n");
    return chunks_of(reply);
  }
  static std::vector<Chunk> chunks_of(const Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<Chunk> chunks;
    for (size_t at = 0; at < reply.body.size();) {
      const size_t line = reply.body.find("\r\n", at);
      const size_t size = std::stoul(reply.body.substr(at), nullptr, 16);
      const std::string head = reply.body.substr(at, line - at);
      const size_t mark = head.find(";t=");
      chunks.push_back({mark == std::string::npos ? "" : head.substr(mark + 3),
                        reply.body.substr(line + 2, size)});
      at = line + 2 + size + 2;
    }
    return chunks;
  }
  // Returns the router's pdjob_resume after the first `count` chunks.
  static std::string resume_after(const std::vector<Chunk>& chunks, size_t count, size_t choices) {
    std::vector<std::string> lists(choices);
    for (size_t i = 0; i < count; ++i) {
      // Without the version of the weights.
      if (const std::string told = chunks[i].told.substr(0, chunks[i].told.find(';'));
          !told.empty()) {
        std::string tokens = told.substr(told.find('.') + 1);
        std::ranges::replace(tokens, '.', ',');
        std::string& list = lists[std::stoul(told)];
        list += (list.empty() ? "" : ",") + tokens;
      }
    }
    std::string all;
    for (const std::string& list : lists) {
      all += (all.empty() ? "[" : ",[") + list + "]";
    }
    return "[" + all + "]";
  }
  static std::string events(const std::vector<Chunk>& chunks, size_t first, const std::string& of) {
    std::string text;
    for (size_t i = first; i < chunks.size(); ++i) {
      text += chunks[i].event.find(of) == std::string::npos ? "" : chunks[i].event;
    }
    return text;
  }
};

TEST_F(ContinuedStream, IsTheSameStreamWhereverItWasCut) {
  const std::string fields =
      R"("max_tokens":40,"seed":5,"logprobs":1,"repetition_penalty":1.2,"return_token_ids":true,)"
      R"("stop":["zz"])";
  const auto whole = stream(fields);
  ASSERT_GT(whole.size(), 10U);
  for (size_t cut = 1; cut + 2 <= whole.size(); ++cut) {
    const auto rest = stream(fields, resume_after(whole, cut, 1));
    EXPECT_EQ(events(rest, 0, ""), events(whole, cut, "")) << "cut after " << cut;
  }
}

// The client of a stream that goes on has the prompt already.
TEST_F(ContinuedStream, AnEchoedPromptAndItsLogprobsComeOnce) {
  const std::string fields =
      R"("max_tokens":6,"seed":5,"n":2,"echo":true,"logprobs":2,"ignore_eos":true)";
  const auto whole = stream(fields);
  const std::string echoed = R"("token_logprobs":[null,)";
  ASSERT_NE(whole[0].event.find(echoed), std::string::npos) << whole[0].event;
  for (size_t cut = 1; cut + 2 <= whole.size(); ++cut) {
    const auto rest = stream(fields, resume_after(whole, cut, 2));
    for (const std::string choice : {R"("index":0)", R"("index":1)"}) {
      EXPECT_EQ(events(rest, 0, choice), events(whole, cut, choice)) << "cut after " << cut;
    }
  }
}

TEST_F(ContinuedStream, EachOfItsChoicesIsTheSame) {
  const std::string fields = R"("max_tokens":12,"seed":5,"n":2)";
  const auto whole = stream(fields);
  for (size_t cut = 1; cut + 2 <= whole.size(); ++cut) {
    const auto rest = stream(fields, resume_after(whole, cut, 2));
    for (const std::string choice : {R"("index":0)", R"("index":1)", R"("choices":[])"}) {
      EXPECT_EQ(events(rest, 0, choice), events(whole, cut, choice)) << "cut after " << cut;
    }
  }
}

TEST_F(ContinuedStream, ThatHadEndedOnlyEnds) {
  const std::string fields = R"("max_tokens":3,"seed":5)";
  const auto whole = stream(fields);
  const auto rest = stream(fields, resume_after(whole, 3, 1));
  EXPECT_EQ(events(rest, 0, ""), events(whole, 3, ""));
  EXPECT_NE(events(rest, 0, "").find("[DONE]"), std::string::npos);
}

TEST_F(ContinuedStream, IsRefusedWhatNoEngineCanHaveGenerated) {
  const auto status = [&](const std::string& resume) {
    return ask("POST", "/v1/completions",
               R"({"prompt":[1,2],"max_tokens":2,"stream":true,"pdjob_resume":)" + resume + "}")
        .status;
  };
  EXPECT_EQ(status("[[1,2,3]]"), 400) << "more than max_tokens";
  EXPECT_EQ(status("[[1000000]]"), 400) << "no such token";
  EXPECT_EQ(status("[[1],[1]]"), 400) << "two lists, one choice";
  EXPECT_EQ(status("[1]"), 400);
}

TEST_F(OpenaiApiTest, ItsLoadHasAllThatItsStepsDid) {
  const std::string body =
      R"({"prompt":"0123456789","max_tokens":5,"ignore_eos":true,"model":"fake"})";
  ASSERT_EQ(ask("POST", "/v1/completions", body).status, 200);
  const net::StepTotals steps = api_->load().steps;
  EXPECT_EQ(steps.tokens, 14U) << "the last one is not computed";
  EXPECT_EQ(steps.tokens, api_->load().tokens_computed);
  EXPECT_EQ(steps.rows_read, 14U * 13 / 2) << "each token reads all before it";
  EXPECT_EQ(steps.outputs, 5U);
  EXPECT_GE(steps.steps, 5U);
  EXPECT_LE(steps.us, api_->load().busy_us);
  EXPECT_GE(steps.us + steps.steps, api_->load().busy_us) << "each step is rounded down";
}

TEST_F(OpenaiApiTest, ItStandsStillWhileItsKvThreadDoesNotReturn) {
  Channel<int> gate{1};
  endpoint_->report_pairs([&](const auto& /*pairs*/) {
    std::vector<int> opened;
    gate.wait_and_drain(opened, real_now() + kPatience);
  });
  turn_until([this] { return api_->load().standstill_ms > 0; });
  EXPECT_EQ(api_->load().patience_ms, 0U) << "nothing is known of its pace";
  gate.close();
  turn_until([this] { return api_->load().standstill_ms == 0; });
}

// --- logprobs of prompts

TEST_F(OpenaiApiTest, ScoresPromptsAndGeneratesNothing) {
  const auto reply = [&](const std::string& fields) {
    return ask("POST", "/v1/completions", R"({"echo":true,"logprobs":0,"max_tokens":0,)" + fields);
  };
  const Reply one = reply(R"("prompt":[97,98,99]})");
  EXPECT_EQ(one.status, 200) << one.body;
  EXPECT_NE(one.body.find(R"("text":"abc")"), std::string::npos) << one.body;
  EXPECT_NE(one.body.find(R"("tokens":["a","b","c"])"), std::string::npos) << one.body;
  EXPECT_NE(one.body.find(R"("finish_reason":"length")"), std::string::npos) << one.body;
  EXPECT_NE(
      one.body.find(
          R"("usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}})"),
      std::string::npos)
      << one.body;
  const Reply streamed = reply(R"("prompt":[97,98,99],"stream":true})");
  EXPECT_NE(streamed.body.find(R"("tokens":["a","b","c"])"), std::string::npos) << streamed.body;
  EXPECT_NE(streamed.body.find("[DONE]"), std::string::npos) << streamed.body;
  const Reply several = reply(R"("prompt":["abc","b"],"n":2})");
  EXPECT_NE(several.body.find(R"({"index":3,"text":"b","logprobs":{"text_offset":[0],)"
                              R"("token_logprobs":[null],"tokens":["b"],"top_logprobs":[null]})"),
            std::string::npos)
      << several.body;
}

// A long prompt needs several steps, beside another one whose rows it must not use.
TEST_F(OpenaiApiTest, ScoresAPromptWhoseRowsItKeptAsIfItWereNew) {
  const std::string fields =
      R"({"prompt":")" + std::string(100, 'x') + R"(","max_tokens":1,"seed":1)";
  const auto logprobs = [&] {
    const std::string body =
        ask("POST", "/v1/completions", fields + R"(,"echo":true,"logprobs":1})").body;
    return body.substr(body.find("\"logprobs\""));
  };
  const std::string first = logprobs();
  EXPECT_EQ(std::ranges::count(first, ':') > 100, true) << first;
  ASSERT_EQ(ask("POST", "/v1/completions", fields + "}").status, 200);
  const std::string kept = ask("POST", "/v1/completions", fields + "}").body;
  EXPECT_NE(kept.find("cached_tokens"), std::string::npos) << kept;
  EXPECT_EQ(logprobs(), first);
}

TEST_F(OpenaiApiTest, RefusesToScoreMoreThanAReplyMayHold) {
  std::string prompts = R"([")" + std::string(100, 'x') + "\"";
  for (int i = 1; i < 128; ++i) {
    prompts += R"(,")" + std::string(100, 'x') + "\"";
  }
  const Reply reply =
      ask("POST", "/v1/completions",
          R"({"prompt":)" + prompts + R"(],"max_tokens":1,"echo":true,"logprobs":20})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("at most 262144 logprobs of prompts"), std::string::npos) << reply.body;
}

TEST_F(OpenaiApiTest, NamesAReplyAsTheRequestIsNamed) {
  const auto id_in = [&](std::string_view header) {
    const std::string body =
        ask("POST", "/v1/completions", R"({"prompt":[1],"max_tokens":1})", header).body;
    return body.substr(0, body.find(','));
  };
  EXPECT_EQ(id_in("x-request-id: a-B_1.c\r\n"), R"({"id":"cmpl-a-B_1.c")");
  EXPECT_EQ(id_in("x-request-id: a\"b\r\n").size(), std::string(R"({"id":"cmpl-")").size() + 32);
}

// --- SGLang's /generate

TEST_F(OpenaiApiTest, AnswersSglangsGenerate) {
  const std::string params = R"("sampling_params":{"temperature":0,"max_new_tokens":3})";
  for (const char* method : {"POST", "PUT"}) {
    const Reply reply = ask(method, "/generate", R"({"input_ids":[1,2,3],)" + params + "}");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_NE(reply.body.find(R"("finish_reason":{"type":"length","length":3})"), std::string::npos)
        << reply.body;
    EXPECT_NE(reply.body.find(R"("prompt_tokens":3,"completion_tokens":3)"), std::string::npos);
    EXPECT_NE(
        reply.body.find(
            R"("weight_version":"default","weight_versions":[{"version":"default","start":0,"end":3}])"),
        std::string::npos)
        << reply.body;
  }
  EXPECT_EQ(ask("GET", "/generate").status, 405);
  EXPECT_EQ(ask("POST", "/generate", R"({"input_ids":[1],"text":"a"})").status, 400);
  EXPECT_EQ(ask("POST", "/generate", R"({"input_ids":[100000]})").status, 400);
}

// An engine that takes 25 ms for each token.
struct AbortedRequest : OpenaiApiTest {
  AbortedRequest() : OpenaiApiTest(std::chrono::milliseconds(25)) {}

  static std::string generate(const std::string& fields) {
    return R"({"input_ids":[1,2,3],"return_logprob":true,"sampling_params":)"
           R"({"temperature":0,"ignore_eos":true,"max_new_tokens":120},)" +
           fields + "}";
  }
  void expect_aborted(const Call& call) {
    EXPECT_EQ(call.reply.status, 200) << call.reply.body;
    EXPECT_NE(call.reply.body.find(R"("finish_reason":{"type":"abort")"), std::string::npos)
        << call.reply.body;
    EXPECT_NE(call.reply.body.find(R"("output_token_logprobs":[)"), std::string::npos);
    turn_until([&] { return api_->load().kv_rows_used == 0; });
  }
};

TEST_F(AbortedRequest, IsAnsweredWithTheTokensThatItHas) {
  Call call(loop_);
  start(call, "POST", "/generate", generate(R"("rid":"mine")"), "x-request-id: r1\r\n");
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_request", R"({"rid":"other"})").status, 200);
  EXPECT_FALSE(call.ended);
  const Reply aborted = ask("POST", "/abort_request", R"({"rid":"mine"})");
  EXPECT_EQ(aborted.status, 200);
  EXPECT_EQ(aborted.body, "");
  await(call);
  expect_aborted(call);
  EXPECT_NE(call.reply.head.find("x-pdjob-aborted: 1\r\n"), std::string::npos);
  EXPECT_EQ(call.reply.body.find(R"("output_token_logprobs":[])"), std::string::npos);
}

TEST_F(AbortedRequest, OfVllmIsNamedByItsRequestId) {
  Call call(loop_);
  start(call, "POST", "/v1/completions",
        R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":120,"n":2})", "x-request-id: r1\r\n");
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_requests", R"({"request_ids":["r1","r2"]})").body,
            R"({"status":"aborted","aborted":1})");
  await(call);
  EXPECT_EQ(call.reply.status, 200);
  EXPECT_NE(call.reply.body.find(R"("finish_reason":"abort")"), std::string::npos);
}

TEST_F(AbortedRequest, OfAStreamEndsIt) {
  Call call(loop_);
  start(call, "POST", "/generate", generate(R"("stream":true)"));
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_request", R"({"abort_all":true})").status, 200);
  await(call);
  expect_aborted(call);
  EXPECT_NE(call.reply.body.find("data: [DONE]"), std::string::npos);
}

TEST_F(AbortedRequest, OfABatchLeavesTheOtherPrompts) {
  Call call(loop_);
  start(call, "POST", "/generate",
        R"({"input_ids":[[1,2],[3,4]],"rid":["a","b"],"sampling_params":)"
        R"({"ignore_eos":true,"max_new_tokens":40}})");
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_request", R"({"rid":"a"})").status, 200);
  await(call);
  EXPECT_NE(call.reply.body.find(R"("id":"a","finish_reason":{"type":"abort")"), std::string::npos)
      << call.reply.body;
  EXPECT_NE(call.reply.body.find(R"("id":"b","finish_reason":{"type":"length","length":40})"),
            std::string::npos)
      << call.reply.body;
}

TEST_F(AbortedRequest, OfAnotherTenantIsNotMeant) {
  Call call(loop_);
  start(call, "POST", "/generate", generate(R"("rid":"mine")"), "x-pdjob-tenant: a\r\n");
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_requests", "{}", "x-pdjob-tenant: b\r\n").body,
            R"({"status":"aborted","aborted":0})");
  EXPECT_FALSE(call.ended);
  EXPECT_EQ(ask("POST", "/abort_requests", "{}", "x-pdjob-tenant: a\r\n").body,
            R"({"status":"aborted","aborted":1})");
  await(call);
  expect_aborted(call);
}

TEST_F(AbortedRequest, ByItsLegIsThatOneAlone) {
  Call first(loop_);
  Call second(loop_);
  const std::string same = "x-request-id: same\r\n";
  start(first, "POST", "/generate", generate(R"("rid":"mine")"), same + "x-pdjob-leg: n-1\r\n");
  start(second, "POST", "/generate", generate(R"("rid":"mine")"), same + "x-pdjob-leg: n-1_2\r\n");
  turn_until([&] { return api_->load().requests_running == 2; });
  turn_until([&] { return api_->load().itl_count > 4; });
  EXPECT_EQ(ask("POST", "/abort_requests", R"({"request_ids":["n-1"]})").body,
            R"({"status":"aborted","aborted":1})");
  await(first);
  EXPECT_NE(first.reply.body.find(R"("type":"abort")"), std::string::npos) << first.reply.body;
  EXPECT_FALSE(second.ended);
  EXPECT_EQ(ask("POST", "/abort_requests", R"({"request_ids":["n-1_2/0","n-1/0"]})").body,
            R"({"status":"aborted","aborted":1})");
  await(second);
  expect_aborted(second);
}

TEST_F(AbortedRequest, ByALegAndANumberIsThatPrompt) {
  Call call(loop_);
  start(call, "POST", "/generate",
        R"({"input_ids":[[1,2],[3,4]],"sampling_params":{"ignore_eos":true,"max_new_tokens":40}})",
        "x-pdjob-leg: n-1\r\n");
  turn_until([&] { return api_->load().itl_count > 2; });
  EXPECT_EQ(ask("POST", "/abort_request", R"({"rid":"n-1/0"})").status, 200);
  await(call);
  const size_t second = call.reply.body.find(R"("finish_reason":{"type":"length","length":40})");
  EXPECT_LT(call.reply.body.find(R"("finish_reason":{"type":"abort")"), second) << call.reply.body;
  EXPECT_NE(second, std::string::npos) << call.reply.body;
}

// The client has its resumed tokens; the abort must not take them back.
TEST_F(AbortedRequest, ThatGoesOnHereKeepsTheTokensThatItBrought) {
  Call busy[2] = {Call(loop_), Call(loop_)};
  for (Call& each : busy) {
    start(each, "POST", "/generate", generate(R"("rid":"busy")"));
  }
  turn_until([&] { return api_->load().requests_running == 2; });
  Call call(loop_);
  start(call, "POST", "/generate",
        R"({"input_ids":[1,2,3],"stream":true,"rid":"mine","sampling_params":)"
        R"({"ignore_eos":true,"max_new_tokens":100},"pdjob_resume":[[5,6,7]]})",
        "x-pdjob-continue: 1700000000\r\nx-pdjob-leg: n-1\r\n");
  turn_until([&] { return api_->load().requests_queued == 1; });
  EXPECT_EQ(ask("POST", "/abort_request", R"({"rid":"n-1"})").status, 200);
  EXPECT_FALSE(call.ended);
  EXPECT_EQ(ask("POST", "/abort_request", R"({"rid":"busy"})").status, 200);
  await(call);
  EXPECT_NE(call.reply.body.find(R"("output_ids":[5,6,7],)"), std::string::npos) << call.reply.body;
  EXPECT_NE(call.reply.body.find(R"("completion_tokens":3)"), std::string::npos);
  EXPECT_NE(call.reply.body.find(R"("finish_reason":{"type":"abort")"), std::string::npos);
  EXPECT_NE(call.reply.body.find("data: [DONE]"), std::string::npos);
  turn_until([&] { return api_->load().kv_rows_used == 0; });
}

class UpdatedWeights : public OpenaiApiTest {
 protected:
  UpdatedWeights() : OpenaiApiTest({}, "v2") {}
};

TEST_F(UpdatedWeights, AreNamedWithATokenOfGenerate) {
  const Reply reply =
      ask("POST", "/generate", R"({"input_ids":[1],"sampling_params":{"max_new_tokens":2}})");
  EXPECT_NE(reply.body.find(R"("weight_version":"v2")"), std::string::npos) << reply.body;
}

TEST_F(OpenaiApiTest, GenerateShowsTheTokenThatEndedIt) {
  // The fake engine's next token depends on the tokens before it; any is a stop token here.
  std::string all = "0";
  for (int token = 1; token < 250; ++token) {
    all += "," + std::to_string(token);
  }
  const Reply reply = ask(
      "POST", "/generate",
      R"({"input_ids":[1,2],"return_logprob":true,"sampling_params":{"temperature":0,"max_new_tokens":9,)"
      R"("stop_token_ids":[)" +
          all + "]}}");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(reply.body.find(R"("finish_reason":{"type":"stop","matched":)"), std::string::npos);
  EXPECT_NE(reply.body.find(R"("output_token_logprobs_length":1)"), std::string::npos)
      << reply.body;
}

TEST_F(OpenaiApiTest, RepliesWithTokenIdsHaveTheTokenThatEndedThem) {
  std::string all = "0";
  for (int token = 1; token < 250; ++token) {
    all += "," + std::to_string(token);
  }
  const std::string sampling = R"("temperature":0,"stop_token_ids":[)" + all + R"(],"logprobs":0)";
  const Reply tokens =
      ask("POST", "/inference/v1/generate",
          R"({"token_ids":[1,2],"request_id":"r","sampling_params":{)" + sampling + "}}");
  EXPECT_EQ(tokens.status, 200) << tokens.body;
  const size_t at = tokens.body.find(R"("token_ids":[)");
  const std::string ids = tokens.body.substr(at, tokens.body.find(']', at) + 1 - at);
  EXPECT_GT(ids.size(), std::string(R"("token_ids":[])").size()) << tokens.body;
  EXPECT_NE(tokens.body.find(R"("token":"token_id:)"), std::string::npos) << tokens.body;
  EXPECT_EQ(tokens.body.find(R"({"request_id":"r","choices":[{"index":0,)"), 0U) << tokens.body;
  const std::string completion = R"({"prompt":[1,2],"max_tokens":9,)" + sampling;
  const Reply shown = ask("POST", "/v1/completions", completion + R"(,"return_token_ids":true})");
  EXPECT_NE(shown.body.find(ids), std::string::npos) << shown.body << " has not " << ids;
  EXPECT_EQ(shown.body.find(R"("token_logprobs":[])"), std::string::npos) << shown.body;
  const Reply plain = ask("POST", "/v1/completions", completion + "}");
  EXPECT_EQ(plain.body.find("token_ids"), std::string::npos);
  EXPECT_NE(plain.body.find(R"("logprobs":null)"), std::string::npos) << plain.body;
}

TEST_F(ContinuedStream, OfGenerateIsTheSameWhereverItWasCut) {
  const auto generated = [&](const std::string& resume) {
    std::string body = R"({"input_ids":[1,2,3,4,5],"stream":true,"rid":"r",)"
                       R"("sampling_params":{"max_new_tokens":12,"sampling_seed":5})" +
                       (resume.empty() ? "" : R"(,"pdjob_resume":)" + resume) + "}";
    auto chunks = chunks_of(ask("POST", "/generate", std::move(body),
                                "x-request-id: r1\r\nx-pdjob-continue: 1700000000\r\n"));
    for (Chunk& chunk : chunks) {  // The only part that may differ.
      if (const size_t at = chunk.event.find(R"("e2e_latency":)"); at != std::string::npos) {
        chunk.event.erase(at, chunk.event.find(',', at) - at);
      }
    }
    return chunks;
  };
  const auto whole = generated("");
  ASSERT_GT(whole.size(), 5U);
  for (size_t cut = 1; cut + 2 <= whole.size(); ++cut) {
    EXPECT_EQ(events(generated(resume_after(whole, cut, 1)), 0, ""), events(whole, cut, ""))
        << "cut after " << cut;
  }
}

struct ContinuedStreamAfterAnUpdate : ContinuedStream {
  ContinuedStreamAfterAnUpdate() : ContinuedStream({}, "v2") {}
};

TEST_F(ContinuedStreamAfterAnUpdate, SaysWhichWeightsMadeItsEarlierTokens) {
  const auto chunks =
      chunks_of(ask("POST", "/generate",
                    R"({"input_ids":[1,2,3],"stream":true,"sampling_params":{"max_new_tokens":4,)"
                    R"("ignore_eos":true},"pdjob_resume":[[5,6]],)"
                    R"("pdjob_resume_weights":[[{"version":"7631","start":0,"end":2}]]})",
                    "x-pdjob-continue: 1700000000\r\n"));
  ASSERT_GE(chunks.size(), 2U);
  EXPECT_NE(chunks[0].told.find(";w=7632"), std::string::npos) << chunks[0].told;
  const std::string last = events(chunks, 0, "weight_versions");
  EXPECT_NE(
      last.find(
          R"("weight_version":"v2","weight_versions":[{"version":"v1","start":0,"end":2},{"version":"v2","start":2,"end":4}])"),
      std::string::npos)
      << last;
}

// --- whole replies that go on at another worker

struct ContinuedReply : OpenaiApiTest {
  using OpenaiApiTest::OpenaiApiTest;
  Reply whole(const std::string& fields, std::string_view header_lines) {
    return ask("POST", "/v1/completions",
               R"({"prompt":[1,2,3,4,5],"max_tokens":20,)" + fields + "}", header_lines);
  }
  // The part that clients read.
  static std::string choices_and_usage(const Reply& reply) {
    return reply.body.substr(std::min(reply.body.find("\"choices\""), reply.body.size()));
  }
  const std::string kFields = R"("temperature":1,"seed":7,"ignore_eos":true,"n":2)";
  static constexpr std::string_view kAsks = "x-pdjob-progress: 8\r\n";
};

TEST_F(ContinuedReply, IsTheSameWhereverItWasCut) {
  const Reply first = whole(kFields, kAsks);
  ASSERT_EQ(first.status, 200) << first.body;
  ASSERT_EQ(first.told.size(), 4U) << "twice eight tokens of each of two choices";
  for (size_t cut = 1; cut <= first.told.size(); ++cut) {
    openai::ToldTokens told;
    for (size_t i = 0; i < cut; ++i) {
      EXPECT_EQ(told.take(first.told[i]), openai::ToldTokens::Taken::kNew) << first.told[i];
    }
    const Reply rest =
        whole(kFields + R"(,"pdjob_resume":)" + told.tokens_json() + R"(,"pdjob_resume_weights":)" +
                  told.weights_json() + R"(,"pdjob_resume_model":)" + told.model_json(),
              kAsks);
    EXPECT_EQ(choices_and_usage(rest), choices_and_usage(first)) << "cut after " << cut;
    openai::ToldTokens again;
    for (const std::string& note : rest.told) {
      again.take(note);
    }
    openai::ToldTokens all;
    for (const std::string& note : first.told) {
      all.take(note);
    }
    EXPECT_EQ(again.weights_json().empty(), false);
    EXPECT_GE(again.count(), all.count()) << "it tells those that it got, too";
  }
}

TEST_F(ContinuedReply, OfAnotherModelBeginsAnew) {
  const Reply first = whole(kFields, kAsks);
  const Reply other =
      whole(kFields + R"(,"pdjob_resume":[[1,1,1],[2,2]],"pdjob_resume_model":"0011223344556677")",
            kAsks);
  EXPECT_EQ(choices_and_usage(other), choices_and_usage(first));
}

TEST_F(ContinuedReply, TellsNothingUnasked) {
  EXPECT_EQ(whole(kFields, "").told.size(), 0U);
  EXPECT_EQ(whole(kFields, "x-pdjob-progress: often\r\n").told.size(), 0U);
}

TEST_F(ContinuedReply, WithLogprobsTellsNothing) {
  EXPECT_EQ(whole(kFields + R"(,"logprobs":1)", kAsks).told.size(), 0U)
      << "another worker does not know those of the first tokens";
}

struct ContinuedReplyAfterAnUpdate : ContinuedReply {
  ContinuedReplyAfterAnUpdate() : ContinuedReply({}, "v2") {}
};

TEST_F(ContinuedReplyAfterAnUpdate, TellsWhichWeightsMadeEachToken) {
  const Reply reply = whole(
      kFields +
          R"(,"pdjob_resume":[[5,6],[7]],"pdjob_resume_weights":)"
          R"([[{"version":"7631","start":0,"end":2}],[{"version":"7631","start":0,"end":1}]])",
      kAsks);
  openai::ToldTokens told;
  for (const std::string& note : reply.told) {
    told.take(note);
  }
  EXPECT_EQ(told.weights_json(),
            R"([[{"version":"7631","start":0,"end":2},{"version":"7632","start":2,"end":16}],)"
            R"([{"version":"7631","start":0,"end":1},{"version":"7632","start":1,"end":16}]])");
}

// --- requests whose preparation takes long

// Returns a request with 256 prompts. The tokenizer stops at the first one.
std::string long_request() {
  std::string body = R"({"max_tokens":1,"prompt":["wait)" + std::string(40, 'a') + '"';
  for (int i = 1; i < 256; ++i) {
    body += R"(,"aaaaaaaaaaaaaaaa")";
  }
  return body + "]}";
}

struct LongRequest : OpenaiApiTest {
  LongRequest() { engine_->watched().close(); }
  ~LongRequest() override { engine_->watched().open(); }
};

TEST_F(LongRequest, DoesNotStopTheLoop) {
  Call slow(loop_);
  start(slow, "POST", "/v1/completions", long_request());
  Call texts(loop_);
  start(texts, "POST", "/tokenize", R"({"prompt":"wait)" + std::string(5000, 'a') + R"("})");
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(ask("GET", "/health").status, 200);
    EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt":"short","max_tokens":1})").status, 200);
    EXPECT_EQ(ask("POST", "/tokenize", R"({"prompt":"short"})").status, 200);
  }
  EXPECT_FALSE(slow.ended);
  EXPECT_FALSE(texts.ended);
  engine_->watched().open();
  await(slow);
  EXPECT_EQ(slow.reply.status, 200) << slow.reply.body;
  await(texts);
  EXPECT_EQ(texts.reply.status, 200);
}

TEST_F(LongRequest, WhosePreparationDoesNotReturnLetsTheWorkerStandStill) {
  Call slow(loop_);
  start(slow, "POST", "/v1/completions", long_request());
  turn_until([this] { return api_->load().standstill_ms > 0; });
  engine_->watched().open();
  await(slow);
  turn_until([this] { return api_->load().standstill_ms == 0; });
}

TEST_F(LongRequest, ThatIsAbortedNeverStarts) {
  Call slow(loop_);
  start(slow, "POST", "/v1/completions", long_request());
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("POST", "/abort_requests").body, R"({"status":"aborted","aborted":1})");
  engine_->watched().open();
  await(slow);
  EXPECT_EQ(slow.reply.status, 200);
  EXPECT_NE(slow.reply.body.find(R"("finish_reason":"abort")"), std::string::npos);
  EXPECT_EQ(api_->load().tokens_computed, 0U);
}

TEST_F(LongRequest, OfWhichOnePromptIsAbortedStartsWithTheOthers) {
  Call slow(loop_);
  start(slow, "POST", "/v1/completions", long_request(), "x-pdjob-leg: n-1\r\n");
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("POST", "/abort_requests", R"({"request_ids":["n-1/1","n-10"]})").body,
            R"({"status":"aborted","aborted":1})");
  engine_->watched().open();
  await(slow);
  EXPECT_EQ(slow.reply.status, 200);
  const std::string_view body = slow.reply.body;
  const std::string_view aborted = R"("finish_reason":"abort")";
  EXPECT_NE(body.find(aborted), std::string_view::npos);
  EXPECT_EQ(body.find(aborted), body.rfind(aborted));
}

TEST_F(LongRequest, WhoseClientLeavesIsForgotten) {
  Call slow(loop_);
  const net::CallId id = start(slow, "POST", "/v1/completions", long_request());
  EXPECT_EQ(ask("GET", "/health").status, 200);
  client_->cancel(id);
  for (int turn = 0; turn < 100; ++turn) {
    const std::string metrics = ask("GET", "/metrics").body;
    if (metrics.find("pdjob_requests_total{outcome=\"cancelled\"} 1") != std::string::npos) {
      break;
    }
  }
  bool drained = false;
  api_->start_draining([&] { drained = true; });
  EXPECT_TRUE(drained) << "nothing waits";
}

TEST_F(LongRequest, ThatCameBeforeTheDrainIsAnswered) {
  Call slow(loop_);
  start(slow, "POST", "/v1/completions", long_request());
  while (server_->replies_alive() == 0) {
    EXPECT_EQ(ask("GET", "/health").status, 200);
  }
  EXPECT_EQ(ask("GET", "/health").status, 200);
  api_->start_draining([this] { thread_.drain(); });
  const Reply late = ask("POST", "/v1/completions", R"({"prompt":"short","max_tokens":1})");
  EXPECT_EQ(late.status, 503);
  EXPECT_FALSE(slow.ended);
  engine_->watched().open();
  await(slow);
  EXPECT_EQ(slow.reply.status, 200) << slow.reply.body;
}

TEST_F(OpenaiApiTest, DetokenizesNoMoreThanAReplyHolds) {
  std::string body = R"({"tokens":[1)";
  for (size_t i = 0; i < limits::kDetokenizeTokensMax; ++i) {
    body += ",1";
  }
  const Reply reply = ask("POST", "/detokenize", body + "]}");
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_EQ(ask("POST", "/detokenize", R"({"tokens":[104,105]})").body, R"({"prompt":"hi"})");
}

TEST_F(OpenaiApiTest, DetokenizesSpecialTokensUnlessTheyAreSkipped) {
  const std::string tokens = R"({"tokens":[104,)" + std::to_string(engine::kFakeEnd) + "]";
  EXPECT_EQ(ask("POST", "/detokenize", tokens + "}").body, R"({"prompt":"h<|im_end|>"})");
  EXPECT_EQ(ask("POST", "/detokenize", tokens + R"(,"skip_special_tokens":true})").body,
            R"({"prompt":"h"})");
}

}  // namespace
}  // namespace pdjob::worker
