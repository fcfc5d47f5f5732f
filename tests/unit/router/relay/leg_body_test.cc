#include "router/relay/leg_body.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

RequestBody scanned(const std::string& text) {
  auto body = RequestBody::scan(text);
  EXPECT_TRUE(body) << text << ": " << (body ? "" : body.error().message);
  return body ? *std::move(body) : RequestBody();
}

int status_of(const std::string& text) {
  const auto body = RequestBody::scan(text);
  return body ? 200 : body.error().status;
}

TEST(RequestBody, FindsWhatTheRouterMustKnow) {
  const RequestBody body =
      scanned(R"({"prompt":"Once","model":"m\u0031","max_tokens":32,"stream":true})");
  EXPECT_EQ(body.model(), "m1");
  EXPECT_EQ(body.output_tokens(), 32U);
  EXPECT_EQ(scanned(R"({})").model(), "");
}

TEST(RequestBody, KnowsAFlexRequestInEachFormThatHasTiers) {
  const auto is_flex = [](const char* text, BodyForm form) {
    return RequestBody::scan(text, form)->is_flex();
  };
  constexpr const char* kFlex = R"({"prompt":"x","input":"x","service_tier":"flex"})";
  EXPECT_TRUE(is_flex(kFlex, BodyForm::kOpenai));
  EXPECT_TRUE(is_flex(kFlex, BodyForm::kEmbedding));
  EXPECT_TRUE(is_flex(kFlex, BodyForm::kResponses));
  EXPECT_FALSE(is_flex(R"({"prompt":"x","service_tier":"auto"})", BodyForm::kOpenai));
  EXPECT_FALSE(is_flex(R"({"prompt":"x"})", BodyForm::kOpenai));
  EXPECT_FALSE(is_flex(R"({"text":"x","service_tier":"flex"})", BodyForm::kSglang));
  EXPECT_FALSE(is_flex(R"({"token_ids":[1],"service_tier":"flex","sampling_params":{}})",
                       BodyForm::kTokens));
  EXPECT_FALSE(RequestBody::pass(R"({"service_tier":"flex"})", "application/json")->is_flex());
}

TEST(RequestBody, PrefillLegAsksForOneTokenWithoutStream) {
  const RequestBody body = scanned(
      R"({"prompt":"x","max_tokens":32,"min_tokens":4,"max_completion_tokens":9,"n_predict":8,"n":2,"stream":true,"stream_options":{"include_usage":true},"odd":[1, 2.50]})");
  EXPECT_EQ(
      body.prefill_leg({.kv_transfer_params = R"({"a":1})"}),
      R"({"prompt":"x","max_tokens":1,"min_tokens":1,"max_completion_tokens":1,"n_predict":1,"n":1,"stream":false,"odd":[1, 2.50],"kv_transfer_params":{"a":1}})");
}

TEST(RequestBody, PrefillLegGetsALimitWhereTheClientGaveNone) {
  EXPECT_EQ(scanned(R"({"prompt":"x"})").prefill_leg({.kv_transfer_params = "{}"}),
            R"({"prompt":"x","max_tokens":1,"kv_transfer_params":{}})");
}

TEST(RequestBody, DecodeLegIsTheClientsBodyAndTheParams) {
  const RequestBody body = scanned(R"( {"prompt" : "x", "temperature":1e0,"stream":true} )");
  EXPECT_EQ(body.decode_leg({.kv_transfer_params = R"({"b":2})"}),
            R"( {"prompt" : "x", "temperature":1e0,"stream":true,"kv_transfer_params":{"b":2}} )");
  EXPECT_EQ(body.decode_leg({}), R"( {"prompt" : "x", "temperature":1e0,"stream":true} )");
}

TEST(RequestBody, AClientCannotNameAKvSource) {
  const RequestBody body = scanned(R"({"kv_transfer_params":{"remote_host":"evil"},"prompt":"x"})");
  EXPECT_EQ(body.decode_leg({}).find("evil"), std::string::npos);
  EXPECT_EQ(body.decode_leg({.kv_transfer_params = "{}"}).find("evil"), std::string::npos);
  EXPECT_EQ(body.prefill_leg({.kv_transfer_params = "{}"}).find("evil"), std::string::npos);
}

TEST(RequestBody, AClientCannotNameABootstrapServer) {
  const RequestBody body = scanned(
      R"({"bootstrap_host":"evil","bootstrap_port":666,"bootstrap_room":666,"prompt":"x"})");
  for (const std::string& leg : {body.decode_leg({}), body.prefill_leg({})}) {
    EXPECT_EQ(leg.find("evil"), std::string::npos);
    EXPECT_EQ(leg.find("666"), std::string::npos);
  }
}

TEST(RequestBody, APriorityOfTheBackgroundTakesThePlaceOfTheClients) {
  const RequestBody body = scanned(R"({"prompt":"x","priority":-9})");
  EXPECT_EQ(body.decode_leg({}), R"({"prompt":"x","priority":-9})");
  EXPECT_EQ(body.decode_leg({}, {.priority = "1"}), R"({"prompt":"x","priority":1})");
  EXPECT_EQ(body.prefill_leg({}, "1").find("-9"), std::string::npos);
  EXPECT_NE(body.prefill_leg({}).find(R"("priority":-9)"), std::string::npos);
  EXPECT_EQ(scanned(R"({"prompt":"x"})").decode_leg({}, {.priority = "1"}),
            R"({"prompt":"x","priority":1})");
}

TEST(RequestBody, ALegSaysWhereBothEnginesMeet) {
  EXPECT_EQ(scanned(R"({"prompt":"x"})")
                .decode_leg(
                    {.bootstrap_host = R"("h")", .bootstrap_port = "8998", .bootstrap_room = "7"}),
            R"({"prompt":"x","bootstrap_host":"h","bootstrap_port":8998,"bootstrap_room":7})");
}

TEST(RequestBody, AnEscapedOrRepeatedNameHidesNothing) {
  const RequestBody body = scanned(
      R"({"kv_transfer_p\u0061rams":{"h":"evil"},"kv_transfer_params":{"h":"evil"},"prompt":"x"})");
  EXPECT_EQ(body.decode_leg({}).find("evil"), std::string::npos);
  EXPECT_EQ(body.prefill_leg({.kv_transfer_params = "{}"}).find("evil"), std::string::npos);
}

TEST(RequestBody, KeepsItsPlaceWhenMoved) {
  RequestBody first = scanned("{}");
  const RequestBody second = std::move(first);
  EXPECT_EQ(second.decode_leg({.kv_transfer_params = "{}"}), R"({"kv_transfer_params":{}})");
}

TEST(RequestBody, SplicesIntoAnEmptyObject) {
  EXPECT_EQ(scanned("{}").decode_leg({.kv_transfer_params = "{}"}), R"({"kv_transfer_params":{}})");
}

TEST(RequestBody, RefusesWhatIsNotOneObject) {
  for (const char* text :
       {"", "[1]", "\"x\"", "{", "{}{}", "{\"a\":}", "{\"a\":1,}", "null", "{\"model\":\"x}"}) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(RequestBody, KeysInsideValuesAreNotFields) {
  const RequestBody body =
      scanned(R"({"prompt":"\"model\":\"no\"","x":{"model":"no","max_tokens":5}})");
  EXPECT_EQ(body.model(), "");
  EXPECT_EQ(body.output_tokens(), scanned("{}").output_tokens());
}

TEST(RequestBody, CountsAsManyTokensAsThereMayBe) {
  const auto output_tokens = [](const std::string& limits) {
    return scanned("{" + limits + "}").output_tokens();
  };
  const uint64_t most = output_tokens(R"("max_tokens":18446744073709551615)");
  EXPECT_GT(most, 1'000'000U);
  EXPECT_LT(most, 1'000'000'000U) << "sums of many must not overflow";
  EXPECT_EQ(output_tokens(R"("max_tokens":100000000000000000000)"), most);
  EXPECT_EQ(output_tokens(R"("max_completion_tokens":null,"max_tokens":32)"), 32U);
  EXPECT_EQ(output_tokens(R"("max_tokens":32,"n_predict":64)"), 64U);
  for (const char* none :
       {R"("max_tokens":null)", R"("max_tokens":-1)", R"("max_completion_tokens":-1)"}) {
    EXPECT_EQ(output_tokens(none), output_tokens("")) << none;
  }
}

TEST(RequestBody, AnExtraKeyIsASalt) {
  for (const char* name : {"cache_salt", "extra_key"}) {
    const RequestBody body = scanned(R"({"prompt":"x",")" + std::string(name) + R"(":"k"})");
    EXPECT_NE(body.shape(), "") << name;
    EXPECT_FALSE(body.tokenizable()) << name;
  }
}

TEST(RequestBody, KnowsWhatReadsItsPromptOnly) {
  const auto reads = [](const std::string& fields) {
    const RequestBody body = scanned(R"({"prompt":"x",)" + fields + "}");
    return std::pair(body.scores_prompt(), body.prompt_only());
  };
  EXPECT_EQ(reads(R"("echo":true,"logprobs":0,"max_tokens":1)"), std::pair(true, true));
  EXPECT_EQ(reads(R"("echo":true,"logprobs":5,"max_tokens":0)"), std::pair(true, true));
  EXPECT_EQ(reads(R"("echo":true,"logprobs":5,"max_tokens":2)"), std::pair(true, false));
  EXPECT_EQ(reads(R"("echo":true,"logprobs":5)"), std::pair(true, false)) << "a default limit";
  EXPECT_EQ(reads(R"("echo":true,"logprobs":null,"max_tokens":0)"), std::pair(false, false));
  EXPECT_EQ(reads(R"("echo":true,"max_tokens":0)"), std::pair(false, false));
  EXPECT_EQ(reads(R"("echo":false,"logprobs":1,"max_tokens":1)"), std::pair(false, false));
  EXPECT_EQ(scanned(R"({"prompt":"x","max_tokens":0})").output_tokens(), 0U);
  EXPECT_FALSE(
      scanned(R"({"messages":[],"echo":true,"logprobs":true,"max_tokens":1})").prompt_only());
}

TEST(RequestBody, KnowsASglangRequestThatScoresItsPrompt) {
  const auto reads = [](const std::string& fields) {
    const auto scanned =
        RequestBody::scan(R"({"input_ids":[1,2],)" + fields + "}", BodyForm::kSglang);
    const auto& body = *scanned;
    return std::pair(body.scores_prompt(), body.prompt_only());
  };
  const std::string start = R"("return_logprob":true,"logprob_start_len":)";
  const std::string none = R"(,"sampling_params":{"max_new_tokens":0})";
  EXPECT_EQ(reads(start + "0" + none), std::pair(true, true));
  EXPECT_EQ(reads(start + "5"), std::pair(true, false));
  EXPECT_EQ(reads(start + "-1" + none), std::pair(false, false));
  EXPECT_EQ(reads(start + "null" + none), std::pair(false, false));
  EXPECT_EQ(reads(R"("logprob_start_len":0)" + none), std::pair(false, false));
}

TEST(RequestBody, EachFormHasAllThatIsAskedOfIt) {
  for (const BodyForm form : {BodyForm::kOpenai, BodyForm::kSglang, BodyForm::kTokens,
                              BodyForm::kEmbedding, BodyForm::kResponses}) {
    const auto scanned = RequestBody::scan(R"({"model":"m","stream":true,"echo":true})", form);
    const auto& body = *scanned;
    EXPECT_EQ(body.prompt_only(), form == BodyForm::kEmbedding);
    EXPECT_EQ(body.stream(), form != BodyForm::kEmbedding) << "there are no streams of embeddings";
    EXPECT_EQ(std::string(body.user()) + std::string(body.prompt()) + body.shape(), "");
    EXPECT_TRUE(body.rids().empty());
    EXPECT_EQ(body.decode_leg({}), body.text());
  }
}

TEST(RequestBody, AnEmbeddingCostsItsInput) {
  const auto tokens = [](const std::string& input) {
    const auto body = RequestBody::scan("{\"input\":" + input + "}", BodyForm::kEmbedding);
    return body->tokens();
  };
  EXPECT_EQ(tokens(R"([1,2,3,4,5,6,7,8,9,10,11,12])"), 12U);
  EXPECT_EQ(tokens('"' + std::string(400, 'x') + '"'), 103U);
}

TEST(RequestBody, CountsNumbersThatAreWrittenOtherwise) {
  for (const char* limits :
       {R"("max_tokens":900.0)", R"("max_tokens":9e2)", R"("max_tokens":9.0E+2)",
        R"("max_tokens":1,"max\u005ftokens":900)", R"("max_completion_tokens":900)",
        R"("max_completion_tokens":1,"max_tokens":900)"}) {
    EXPECT_EQ(scanned("{" + std::string(limits) + "}").output_tokens(), 900U) << limits;
  }
  for (const char* limits :
       {R"("max_tokens":"900")", R"("max_tokens":0.5)", R"("max_tokens":-2)",
        R"("max_tokens":true)", R"("max_tokens":[900])", R"("max_tokens":1e30)", R"("n":"2")",
        R"("n":-1)", R"("best_of":1.5)"}) {
    EXPECT_EQ(status_of("{" + std::string(limits) + "}"), 400) << limits;
  }
}

TEST(RequestBody, CostsWhatAllItsPromptsAndChoicesMayGet) {
  const auto made = [](const std::string& text) {
    const RequestBody body = scanned(text);
    return body.tokens() - body.prompt_tokens();
  };
  EXPECT_EQ(made(R"({"max_tokens":10})"), 10U);
  EXPECT_EQ(made(R"({"max_tokens":10,"n":3})"), 30U);
  EXPECT_EQ(made(R"({"max_tokens":10,"n":1,"best_of":4.0})"), 40U);
  EXPECT_EQ(made(R"({"max_tokens":10,"n":null,"prompt":["a",", ]\",","c"]})"), 30U);
  EXPECT_EQ(made(R"({"max_tokens":10,"n":2,"prompt":[[1,2],[3]]})"), 40U);
  EXPECT_EQ(made(R"({"max_tokens":10,"prompt":[1,2,3]})"), 10U);
  EXPECT_EQ(made(R"({"max_tokens":10,"prompt":["a"],"prompt":["a","b"]})"), 20U);
  EXPECT_GE(scanned(R"({"prompt":[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9]})").prompt_tokens(), 18U)
      << "ids are counted, not guessed from bytes";
  EXPECT_GT(made(R"({"max_tokens":1e15,"n":1e15,"prompt":["a","b"]})"), uint64_t{1} << 35);
}

TEST(RequestBody, TellsAListOfPromptsFromOnePrompt) {
  for (const char* one : {R"({"prompt":"a, b"})", R"({"prompt":["a"]})", R"({"prompt":[1, 2]})",
                          R"({"prompt":[ [1,2] ]})", R"({"prompt":["a \"], b"]})",
                          R"({"prompt":[]})", R"({"prompt":5})", R"({})"}) {
    EXPECT_FALSE(scanned(one).several_prompts()) << one;
  }
  for (const char* several :
       {R"({"prompt":["a","b"]})", R"({"prompt":[[1],[2]]})", R"({"prompt":[ "a \" ]" , "b" ]})"}) {
    EXPECT_TRUE(scanned(several).several_prompts()) << several;
  }
}

TEST(RequestBody, AChatIsOnePromptHoweverManyMessagesItHas) {
  const RequestBody body = scanned(
      R"({"messages":[{"role":"system","content":"a, b"},{"role":"user","content":"c"}],"max_tokens":10})");
  EXPECT_FALSE(body.several_prompts());
  EXPECT_EQ(body.tokens() - body.prompt_tokens(), 10U);
}

RequestBody sglang(const std::string& text) {
  auto body = RequestBody::scan(text, BodyForm::kSglang);
  EXPECT_TRUE(body) << text << ": " << (body ? "" : body.error().message);
  return body ? *std::move(body) : RequestBody();
}

TEST(SglangBody, HasItsLimitsInItsSamplingParams) {
  const RequestBody body = sglang(
      R"({"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":32,"n":2},"stream":true,"routing_key":"k"})");
  EXPECT_EQ(body.output_tokens(), 32U);
  EXPECT_EQ(body.tokens() - body.prompt_tokens(), 64U);
  EXPECT_EQ(body.prompt(), "[1,2,3]");
  EXPECT_EQ(body.user(), R"("k")");
  EXPECT_TRUE(body.stream());
  EXPECT_FALSE(body.several_prompts());
  EXPECT_EQ(sglang(R"({"text":"x"})").output_tokens(), 128U) << "SGLang's default";
  EXPECT_EQ(sglang(R"({"text":"x","max_tokens":9})").output_tokens(), 128U);
  EXPECT_EQ(sglang(R"({"text":"x"})").prompt(), R"("x")");
  EXPECT_TRUE(sglang(R"({"input_ids":[[1],[2]]})").several_prompts());
  EXPECT_FALSE(sglang(R"({"text":"x"})").tokenizable());
}

TEST(SglangBody, RefusesLimitsThatAreNoIntegers) {
  for (const char* params : {R"({"max_new_tokens":"9"})", R"({"n":-1})", R"({"n":0.5})"}) {
    EXPECT_FALSE(RequestBody::scan(R"({"text":"x","sampling_params":)" + std::string(params) + "}",
                                   BodyForm::kSglang))
        << params;
  }
}

TEST(SglangBody, LegsNameTheKvAndOnlyTheRouterDoes) {
  const RequestBody body = sglang(
      R"({"input_ids":[1],"stream":true,"sampling_params":{"max_new_tokens":9},"kv_transfer_params":{"remote_host":"evil"},"bootstrap_room":6,"pdjob_resume":[[1]]})");
  EXPECT_EQ(
      body.prefill_leg({.kv_transfer_params = "{}"}),
      R"({"input_ids":[1],"stream":false,"sampling_params":{"max_new_tokens":9},"kv_transfer_params":{},"pdjob_resume":[[1]]})");
  EXPECT_EQ(
      body.decode_leg({.kv_transfer_params = "{}"}, {.resume = "[[4]]"}),
      R"({"input_ids":[1],"stream":true,"sampling_params":{"max_new_tokens":9},"kv_transfer_params":{},"pdjob_resume":[[4]]})");
}

TEST(SglangBody, OnlyAStreamWithoutLogprobsGoesOnElsewhere) {
  EXPECT_TRUE(sglang(R"({"text":"x","stream":true})").resumable());
  EXPECT_FALSE(sglang(R"({"text":"x","stream":true,"return_logprob":true})").resumable());
  EXPECT_TRUE(scanned(R"({"prompt":"x","return_logprob":true})").resumable());
}

TEST(SglangBody, ASaltIsAPartOfItsShape) {
  EXPECT_EQ(sglang(R"({"text":"x","rid":"r"})").shape(), "");
  EXPECT_NE(sglang(R"({"text":"x","extra_key":"r"})").shape(), "");
}

TEST(SglangBody, NamesItsPrompts) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(sglang(R"({"text":"x","rid":"a\"b"})").rids(), Names{"a\"b"});
  EXPECT_EQ(sglang(R"({"text":["x","y"],"rid":"a"})").rids(), (Names{"a_0", "a_1"}));
  EXPECT_EQ(sglang(R"({"text":["x","y"],"rid":["a","b"]})").rids(), (Names{"a", "b"}));
  EXPECT_EQ(sglang(R"({"text":"x"})").rids(), Names{});
  EXPECT_EQ(scanned(R"({"prompt":"x","rid":"a"})").rids(), Names{});
  EXPECT_EQ(sglang(R"({"text":"x","rid":")" + std::string(5000, 'a') + R"("})").rids(), Names{});
}

TEST(TokensBody, HasItsLimitsInItsSamplingParamsAndSoHaveItsLegs) {
  auto scan = RequestBody::scan(
      R"({"token_ids":[1,2],"request_id":"r","sampling_params":{"max_tokens":32,"min_tokens":3,"top_p":0.50},"stream":true,"stream_options":{}})",
      BodyForm::kTokens);
  const auto& body = *scan;
  EXPECT_EQ(body.output_tokens(), 32U);
  EXPECT_EQ(body.prompt(), "[1,2]");
  EXPECT_EQ(body.rids(), std::vector<std::string>{"r"});
  EXPECT_TRUE(body.resumable());
  EXPECT_EQ(
      body.prefill_leg({.kv_transfer_params = "{}"}),
      R"({"token_ids":[1,2],"request_id":"r","sampling_params":{"max_tokens":1,"min_tokens":1,"top_p":0.50},"stream":false,"kv_transfer_params":{}})");
  EXPECT_EQ(RequestBody::scan(R"({"token_ids":[1]})", BodyForm::kTokens)
                ->prefill_leg({.kv_transfer_params = "{}"}),
            R"({"token_ids":[1],"sampling_params":{"max_tokens":1},"kv_transfer_params":{}})");
}

TEST(ResponsesBody, IsOnePromptWithALimitOfItsOwn) {
  auto scan = RequestBody::scan(
      R"({"model":"m","input":["a","b"],"instructions":"i","max_output_tokens":32,"stream":true,"user":"u"})",
      BodyForm::kResponses);
  const auto& body = *scan;
  EXPECT_EQ(body.model(), "m");
  EXPECT_EQ(body.output_tokens(), 32U);
  EXPECT_FALSE(body.several_prompts());
  EXPECT_EQ(body.prompt(), R"(["a","b"])");
  EXPECT_EQ(body.user(), R"("u")");
  EXPECT_EQ(body.shape(), "instructions\"i\"\n");
  EXPECT_TRUE(body.stream() && body.resumable());
  EXPECT_FALSE(body.prompt_only());
  EXPECT_EQ(
      body.prefill_leg({.kv_transfer_params = "{}"}),
      R"({"model":"m","input":["a","b"],"instructions":"i","max_output_tokens":1,"stream":false,"user":"u","store":false,"kv_transfer_params":{}})");
  EXPECT_FALSE(RequestBody::scan(R"({"input":"a","max_output_tokens":"x"})", BodyForm::kResponses));
}

TEST(RequestBodyShape, IsWhatElseMakesAPromptsTokens) {
  const auto shape_of = [](const std::string& text) { return RequestBody::scan(text)->shape(); };
  EXPECT_EQ(shape_of(R"({"prompt":"x","max_tokens":1,"user":"u"})"), "");
  const std::string tools = shape_of(R"({"messages":[],"tools":[{"name":"f"}]})");
  EXPECT_NE(tools, "");
  EXPECT_EQ(shape_of(R"({"tools":[{"name":"f"}],"seed":1,"messages":[]})"), tools);
  EXPECT_NE(shape_of(R"({"messages":[],"documents":[{"name":"f"}]})"), tools);
  EXPECT_NE(shape_of(R"({"prompt":"x","cache_salt":"s"})"), "");
}

TEST(RequestBodyShape, OnlyTextsThatTokensAloneTellApartAreAskedAbout) {
  const auto tokenizable = [](const std::string& text) {
    return RequestBody::scan(text)->tokenizable();
  };
  EXPECT_TRUE(tokenizable(R"({"prompt":"x"})"));
  EXPECT_TRUE(tokenizable(R"({"messages":[{"role":"user","content":"x"}],"tools":[]})"));
  EXPECT_FALSE(tokenizable(R"({"prompt":[1,2]})"));
  EXPECT_FALSE(tokenizable(R"({"prompt":["x"]})"));
  EXPECT_FALSE(tokenizable(R"({"prompt":"x","cache_salt":"s"})"));
  EXPECT_FALSE(tokenizable(R"({"model":"m"})"));
  EXPECT_FALSE(tokenizable(R"({"messages":[{"content":[{"type":"image_url"}]}]})"));
  EXPECT_FALSE(tokenizable(R"({"messages":[{"content":[{"type":"input_audio"}]}]})"));
}

// --- bodies of paths that pdjob does not know

RequestBody passed(const std::string& text, std::string_view type = "application/json") {
  auto body = RequestBody::pass(text, type);
  EXPECT_TRUE(body) << text << ": " << (body ? "" : body.error().message);
  return body ? *std::move(body) : RequestBody();
}

TEST(PassedBody, IsAnObjectWithAModel) {
  const std::string text = R"( {"query": "q", "model":"m", "documents":["a"], "stream":true} )";
  const RequestBody body = passed(text);
  EXPECT_EQ(body.model(), "m");
  EXPECT_EQ(body.decode_leg({}), text);
  EXPECT_TRUE(body.stream());
  EXPECT_FALSE(body.resumable());
  EXPECT_FALSE(body.several_prompts());
  EXPECT_EQ(body.prompt_tokens(), text.size() / 4);
  EXPECT_EQ(passed(R"({"max_tokens":7})").output_tokens(), 7U);
  EXPECT_EQ(passed(R"({"max_tokens":"seven"})").output_tokens(), 256U) << "the engine refuses it";
  EXPECT_EQ(passed(R"({})", "").model(), "");
}

TEST(PassedBody, NamesNoSourceOfKv) {
  EXPECT_EQ(passed(R"({"kv_transfer_params":{"remote_host":"evil"},"bootstrap_room":6,"x":1})")
                .decode_leg({}),
            R"({"x":1})");
}

TEST(PassedBody, IsAFormWithAModel) {
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" +
      std::string(1, '\0') +
      "\xff\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nw\r\n--b--\r\n";
  const RequestBody body = passed(form, "multipart/form-data; boundary=b");
  EXPECT_EQ(body.model(), "w");
  EXPECT_EQ(body.decode_leg({}), form);
  EXPECT_EQ(body.prompt_tokens(), 0U);
}

TEST(PassedBody, OfAnotherTypeIsNotRead) {
  const RequestBody body = passed("RIFF", "audio/wav");
  EXPECT_EQ(body.model(), "");
  EXPECT_EQ(body.decode_leg({}), "RIFF");
}

TEST(PassedBody, ThatIsNotWhatItsTypeSaysIsRefused) {
  EXPECT_EQ(RequestBody::pass("[1]", "application/json").error().status, 400);
  const auto form = RequestBody::pass("{}", "multipart/form-data; boundary=b");
  EXPECT_EQ(form.error().status, 400);
  EXPECT_EQ(form.error().message, "the form is malformed: it does not begin with its boundary");
}

}  // namespace
}  // namespace pdjob::router
