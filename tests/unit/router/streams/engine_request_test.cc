#include "router/streams/engine_request.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChat = "/v1/chat/completions";
const EngineRequest::Tokens kTokens{
    .prompt = "1, 2", .prompt_count = 2, .output = "30,31,32", .output_count = 3};

Obstacle obstacle_of(std::string_view target, const std::string& body,
                     const EngineFacts& engine = {.context_max = 100}) {
  return EngineRequest::read(target, body, engine).obstacle();
}

bool may_replay(std::string_view target, const std::string& body) {
  return EngineRequest::read(target, body, {}).may_replay();
}

std::string next_of(std::string_view target, const std::string& body,
                    const EngineFacts& engine = {.context_max = 100}) {
  const EngineRequest request = EngineRequest::read(target, body, engine);
  if (!request.may_follow(kTokens)) {
    return "";
  }
  const Resumption next = request.by_tokens(kTokens);
  return next.target + " " + next.body;
}

TEST(EngineRequest, GoesOnFromTheTokensOfACompletion) {
  EXPECT_EQ(
      next_of(
          kCompletions,
          R"({"model":"m","prompt":"Hi","max_tokens":10,"min_tokens":4,"stream":true,"top_p":0.9,
                  "n":1,"echo":false,"stop":[],"user":null,"logprobs":2})"),
      R"(/v1/completions {"model":"m","stream":true,"top_p":0.9,"logprobs":2,)"
      R"("prompt":[1, 2,30,31,32],"max_tokens":7,"min_tokens":1,"return_token_ids":true})");
}

TEST(EngineRequest, LeavesACompletionWithoutALimitItsSixteenTokens) {
  EXPECT_EQ(
      next_of(kCompletions, R"({"prompt":[5,6]})"),
      R"(/v1/completions {"prompt":[1, 2,30,31,32],"max_tokens":13,"return_token_ids":true})");
}

TEST(EngineRequest, GoesOnWithAChatOfVllmAsACompletion) {
  EXPECT_EQ(
      next_of(kChat, R"({"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,
                        "chat_template_kwargs":{"a":1},"tools":[],"max_tokens":3,"max_completion_tokens":9})"),
      R"(/v1/completions {"model":"m","stream":true,"prompt":[1, 2,30,31,32],"max_tokens":6,)"
      R"("return_token_ids":true})");
  EXPECT_NE(next_of(kChat, R"({"messages":[]})").find(R"("max_tokens":95)"), std::string::npos)
      << "without a limit, it fills the context";
  EXPECT_EQ(obstacle_of(kChat, R"({"messages":[]})", {}), Obstacle::kMember)
      << "no limit, and no known context";
}

TEST(EngineRequest, GoesOnWithAChatOfSglangAsAChat) {
  EXPECT_EQ(
      next_of(kChat,
              R"({"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":2})",
              {.sglang = true}),
      R"(/v1/chat/completions {"messages":[{"role":"user","content":"Hi"}],"logprobs":true,)"
      R"("top_logprobs":2,"input_ids":[1, 2,30,31,32],"separate_reasoning":false,)"
      R"("return_token_ids":true})");
}

TEST(EngineRequest, HasNoTokenLeftBehindItsLimit) {
  EXPECT_EQ(next_of(kCompletions, R"({"prompt":"Hi","max_tokens":3})"), "");
}

TEST(EngineRequest, NamesWhatIsInTheWay) {
  const std::pair<std::string, Obstacle> cases[] = {
      {R"("n":2)", Obstacle::kChoices},
      {R"("echo":true)", Obstacle::kChoices},
      {R"("use_beam_search":true)", Obstacle::kChoices},
      {R"("prompt":["a","b"])", Obstacle::kChoices},
      {R"("prompt":[[1],[2]])", Obstacle::kChoices},
      {R"("frequency_penalty":0.5)", Obstacle::kSampling},
      {R"("repetition_penalty":1.1)", Obstacle::kSampling},
      {R"("seed":7)", Obstacle::kSampling},
      {R"("stop":"\n")", Obstacle::kText},
      {R"("response_format":{"type":"json_object"})", Obstacle::kStructure},
      {R"("structured_outputs":{"regex":"a"})", Obstacle::kStructure},
      {R"("made_up":1)", Obstacle::kMember},
      {R"("n":2,"made_up":1)", Obstacle::kChoices},
      {R"("frequency_penalty":0,"repetition_penalty":1.0,"seed":null,"stop":[])", Obstacle::kNone},
      {R"("response_format":{"type":"text"})", Obstacle::kNone},
      {R"("seed":7,"temperature":0.0)", Obstacle::kNone},
  };
  for (const auto& [members, expected] : cases) {
    EXPECT_EQ(obstacle_of(kCompletions, "{" + members + "}"), expected) << members;
  }
  EXPECT_EQ(obstacle_of(kChat, R"({"tools":[{"type":"function"}]})"), Obstacle::kTools);
  EXPECT_EQ(obstacle_of(kChat, R"({"tools":[{"type":"function"}],"tool_choice":"none"})"),
            Obstacle::kNone);
  EXPECT_EQ(
      obstacle_of(kChat, R"({"messages":[{"content":[{"type":"image_url"},{"image_url":{}}]}]})"),
      Obstacle::kMember);
  EXPECT_EQ(obstacle_of("/v1/responses", "{}"), Obstacle::kMember);
}

TEST(EngineRequest, IsRepeatedIfItsTokensCannotChange) {
  EXPECT_TRUE(may_replay(kChat, R"({"temperature":0,"tools":[{"type":"function"}]})"));
  EXPECT_TRUE(may_replay(kChat, R"({"seed":7})"));
  EXPECT_FALSE(may_replay(kChat, R"({"temperature":0.1})"));
  EXPECT_FALSE(may_replay(kChat, "{}"));
  EXPECT_FALSE(may_replay(kChat, R"({"temperature":0,"n":2})"));
  const std::string body = R"({"temperature":0,"return_token_ids":false,"stop":"x"})";
  const Resumption again = EngineRequest::read(kCompletions, body, {}).by_replay();
  EXPECT_EQ(again.target, kCompletions);
  EXPECT_EQ(again.body, R"({"temperature":0,"return_token_ids":true,"stop":"x"})");
}

}  // namespace
}  // namespace pdjob::router
