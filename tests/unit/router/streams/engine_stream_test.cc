#include "router/streams/engine_stream.h"

#include <array>
#include <charconv>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChat = "/v1/chat/completions";

std::string chunk(std::string_view payload) {
  std::array<char, 16> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), payload.size(), 16).ptr;
  return std::string(digits.data(), end).append("\r\n").append(payload).append("\r\n");
}

std::string event(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

// As vLLM writes them.
std::string completion(std::string_view text, std::string_view ids, std::string_view end = "",
                       std::string_view prompt = "", std::string_view id = "cmpl-a") {
  const std::string finish = end.empty() ? "null" : "\"" + std::string(end) + "\"";
  const std::string prompt_ids = prompt.empty() ? "null" : "[" + std::string(prompt) + "]";
  const std::string tokens = ids.empty() ? "null" : "[" + std::string(ids) + "]";
  return event(R"({"id":")" + std::string(id) + R"(","object":"text_completion","created":)" +
               (id == "cmpl-a" ? "7" : "8") + R"(,"model":"m","choices":[{"index":0,"text":")" +
               std::string(text) + R"(","logprobs":null,"finish_reason":)" + finish +
               R"(,"stop_reason":null,"prompt_token_ids":)" + prompt_ids + R"(,"token_ids":)" +
               tokens + "}]}");
}

std::string chat(std::string_view delta, std::string_view ids, std::string_view end = "",
                 std::string_view id = "chatcmpl-a", std::string_view prompt = "") {
  const std::string finish = end.empty() ? "null" : "\"" + std::string(end) + "\"";
  const std::string tokens = ids.empty() ? "" : R"(,"token_ids":[)" + std::string(ids) + "]";
  const std::string top =
      prompt.empty() ? "" : R"(,"prompt_token_ids":[)" + std::string(prompt) + "]";
  return event(R"({"id":")" + std::string(id) + R"(","object":"chat.completion.chunk","created":)" +
               (id == "chatcmpl-a" ? "7" : "8") +
               R"(,"model":"m","choices":[{"index":0,"delta":{)" + std::string(delta) +
               R"(},"logprobs":null,"finish_reason":)" + finish + tokens + "}]" + top + "}");
}

// A stream, with the payload that the client has.
class Stream {
 public:
  Stream(std::string_view target, std::string body, const EngineFacts& engine = {.context_max = 99})
      : body_(std::move(body)), record_(EngineRequest::read(target, body_, engine)) {}

  // The payload that came with these events.
  std::string take(std::string_view events) {
    std::string out;
    record_.take(chunk(events), out);
    return payload(out);
  }
  std::string finish() {
    std::string out;
    record_.finish(out);
    return payload(out);
  }
  // The worker's body has ended. Returns what the client gets.
  std::string end() {
    std::string out;
    record_.take("0\r\n\r\n", out);
    return out;
  }
  EngineStream& operator*() { return record_; }
  EngineStream* operator->() { return &record_; }

 private:
  static std::string payload(std::string_view raw) {
    net::ChunkDecoder decoder;
    std::string text;
    EXPECT_EQ(decoder.decode(raw, text), raw.size());
    EXPECT_FALSE(decoder.failed());
    return text;
  }

  const std::string body_;
  EngineStream record_;
};

TEST(EngineStream, TakesTheIdsOutAndGoesOnFromThem) {
  Stream stream(kCompletions, R"({"prompt":"Hi","max_tokens":5})");
  EXPECT_EQ(stream.take(completion(" a", "30", "", "1,2")), completion(" a", ""));
  EXPECT_EQ(stream.take(completion(" b c", "31, 32")), completion(" b c", ""));
  ASSERT_TRUE(stream->resumable());
  EXPECT_EQ(stream->resumption().body,
            R"({"prompt":[1,2,30,31,32],"max_tokens":2,"return_token_ids":true})");
  stream->change_worker();
  EXPECT_EQ(stream.take(completion(" d", "33", "", "1,2,30,31,32", "cmpl-b")), completion(" d", ""))
      << "it is one stream with one id";
  EXPECT_EQ(stream->resumption().body,
            R"({"prompt":[1,2,30,31,32,33],"max_tokens":1,"return_token_ids":true})");
  EXPECT_EQ(stream.take(completion(" e", "34", "length", "", "cmpl-b") + event("[DONE]")),
            completion(" e", "", "length") + event("[DONE]"));
  EXPECT_FALSE(stream->complete()) << "a client that has the end may send its next request";
  EXPECT_EQ(stream.end(), "0\r\n\r\n");
  EXPECT_TRUE(stream->complete());
}

TEST(EngineStream, GivesIdsToAClientThatAsksForThem) {
  Stream stream(kCompletions, R"({"prompt":"Hi","return_token_ids":true})");
  EXPECT_EQ(stream.take(completion(" a", "30", "", "1,2")), completion(" a", "30", "", "1,2"));
}

TEST(EngineStream, IsTheSameHoweverTheBytesCome) {
  const std::string raw = chunk(completion(" a", "30", "", "1,2") + completion("", "31")) +
                          chunk(completion(" c", "32", "length")) + chunk(event("[DONE]")) +
                          "0\r\n\r\n";
  const auto taken = [&](size_t cut) {
    const std::string body = R"({"prompt":"Hi"})";
    EngineStream record(EngineRequest::read(kCompletions, body, {}));
    std::string framed;
    record.take(std::string_view(raw).substr(0, cut), framed);
    record.take(std::string_view(raw).substr(cut), framed);
    EXPECT_TRUE(record.complete()) << cut;
    net::ChunkDecoder decoder;
    std::string text;
    decoder.decode(framed, text);
    EXPECT_TRUE(decoder.done()) << cut;
    return text;
  };
  const std::string whole = taken(raw.size());
  EXPECT_EQ(whole, completion(" a", "") + completion("", "") + completion(" c", "", "length") +
                       event("[DONE]"));
  for (size_t cut = 0; cut < raw.size(); ++cut) {
    EXPECT_EQ(taken(cut), whole) << cut;
  }
}

TEST(EngineStream, HoldsTokensBackThatMadeNoTextYet) {
  Stream stream(kCompletions, R"({"prompt":"Hi","max_tokens":9})");
  stream.take(completion(" a", "30", "", "1"));
  EXPECT_EQ(stream.take(completion("", "31")), "");
  EXPECT_EQ(stream->resumption().body,
            R"({"prompt":[1,30],"max_tokens":8,"return_token_ids":true})")
      << "half a character is made anew";
  EXPECT_EQ(stream.take(completion("é", "32")), completion("", "") + completion("é", ""));
  EXPECT_EQ(stream->resumption().body,
            R"({"prompt":[1,30,31,32],"max_tokens":6,"return_token_ids":true})");
}

TEST(EngineStream, BeginsAnewWhileTheClientHasNoToken) {
  Stream stream(kChat, R"({"messages":[],"tools":[{"type":"function"}]})");
  EXPECT_EQ(stream.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-a", "1")),
            event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
                  R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},)"
                  R"("logprobs":null,"finish_reason":null}],"prompt_token_ids":null})"));
  ASSERT_TRUE(stream->resumable()) << "tools or not";
  stream->change_worker();
  EXPECT_EQ(stream.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-b", "1") +
                        chat(R"("content":"x")", "30", "", "chatcmpl-b")),
            event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
                  R"("choices":[{"index":0,"delta":{"content":"x"},"logprobs":null,)"
                  R"("finish_reason":null,"token_ids":null}]})"))
      << "the second beginning is left out";
  EXPECT_EQ(stream->obstacle(), Obstacle::kTools);
}

TEST(EngineStream, MakesAChatOfTheCompletionThatGoesOn) {
  Stream stream(kChat, R"({"messages":[],"max_tokens":9,"stream_options":{"include_usage":true}})");
  stream.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-a", "1,2") +
              chat(R"("content":"a")", "30"));
  EXPECT_EQ(stream->resumption().target, kCompletions);
  stream->change_worker();
  EXPECT_EQ(stream.take(completion(" b", "31", "length", "1,2,30", "cmpl-b")),
            event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
                  R"("choices":[{"index":0,"delta":{"content":" b"},"logprobs":null,)"
                  R"("finish_reason":"length","stop_reason":null,"token_ids":null}]})"));
  EXPECT_EQ(
      stream.take(event(R"({"id":"cmpl-b","created":8,"model":"m","choices":[],"usage":)"
                        R"({"prompt_tokens":3,"total_tokens":4,"completion_tokens":1}})")),
      event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
            R"("choices":[],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2}})"))
      << "the tokens before count as the stream's, not as the prompt's";
}

TEST(EngineStream, CountsTextOffsetsFromTheBeginning) {
  const auto with_logprobs = [](std::string_view id, std::string_view offsets,
                                std::string_view tokens) {
    return event(R"({"id":")" + std::string(id) +
                 R"(","created":7,"choices":[{"index":0,)"
                 R"("text":"x","logprobs":{"text_offset":[)" +
                 std::string(offsets) + R"(],"tokens":[)" + std::string(tokens) +
                 R"(]},"finish_reason":null,)"
                 R"("prompt_token_ids":[1],"token_ids":[30,31]}]})");
  };
  // The first event had the prompt's.
  const auto without_prompt = [](std::string text) {
    return text.replace(text.find("[1]"), 3, "null");
  };
  Stream stream(kCompletions, R"({"prompt":"Hi","logprobs":1,"return_token_ids":true})");
  const std::string tokens = R"("abc","\u00e9]\"")";
  EXPECT_EQ(stream.take(with_logprobs("a", "0,3", tokens)), with_logprobs("a", "0,3", tokens));
  stream->change_worker();
  EXPECT_EQ(stream.take(with_logprobs("b", "0,2", R"("de","f")")),
            without_prompt(with_logprobs("a", "6,8", R"("de","f")")));
  stream->change_worker();
  EXPECT_EQ(stream.take(with_logprobs("c", "0", R"("g")")),
            without_prompt(with_logprobs("a", "9", R"("g")")));
}

TEST(EngineStream, PassesTheTextOfAWorkerThatTellsNoTokensAndThenEndsWithIt) {
  Stream stream(kCompletions, R"({"prompt":"Hi"})");
  stream.take(completion(" a", "30", "", "1"));
  stream->change_worker();
  EXPECT_EQ(stream.take(completion(" b", "", "", "", "cmpl-b")), completion(" b", ""));
  EXPECT_EQ(stream.take(completion(" c", "", "stop", "", "cmpl-b")), completion(" c", "", "stop"));
  EXPECT_EQ(stream->obstacle(), Obstacle::kNoTokens);
}

TEST(EngineStream, RepeatsWhatCannotGoOnFromTokens) {
  Stream stream(kChat, R"({"messages":[],"temperature":0,"tools":[{"type":"function"}]})");
  const std::string begin = chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-a", "1");
  stream.take(begin + chat(R"("content":"a")", "30") + chat("", "31"));
  ASSERT_TRUE(stream->resumable());
  EXPECT_EQ(stream->resumption().target, kChat);
  stream->change_worker();
  EXPECT_EQ(stream.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-b", "1") +
                        chat(R"("content":"a")", "30", "", "chatcmpl-b")),
            "");
  EXPECT_EQ(stream.take(chat("", "31", "", "chatcmpl-b")), "");
  EXPECT_EQ(stream.take(chat(R"("tool_calls":[{"index":0}])", "32", "", "chatcmpl-b")),
            event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
                  R"("choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]},"logprobs":null,)"
                  R"("finish_reason":null,"token_ids":null}]})"));
  EXPECT_FALSE(stream->broken());
}

TEST(EngineStream, GivesTheRestOfAnEventThatGoesFurtherThanTheClientHas) {
  Stream stream(kCompletions,
                R"({"prompt":"Hi","temperature":0,"stop":"x","return_token_ids":true})");
  stream.take(completion(" a", "30", "", "1") + completion(" \\u00e9", "31"));
  stream->change_worker();
  EXPECT_EQ(stream.take(completion(" a", "30", "", "1", "cmpl-b")), "");
  EXPECT_EQ(stream.take(completion(" \\u00e9 c d", "31, 32,33", "stop", "", "cmpl-b")),
            completion(" c d", "32,33", "stop"));
  EXPECT_FALSE(stream->broken());
}

TEST(EngineStream, KnowsWhereTheClientIsWhenARepeatingWorkerDies) {
  Stream stream(kChat, R"({"messages":[],"temperature":0})");
  const auto role = [](std::string_view id) {
    return chat(R"("role":"assistant","content":"")", "", "", id, "1");
  };
  stream.take(role("chatcmpl-a") + chat(R"("content":"a")", "30") +
              chat(R"("tool_calls":[{"index":0,"function":{"arguments":"{"}}])", "31"));
  stream->change_worker();
  stream.take(role("chatcmpl-b") + chat(R"("content":"a")", "30", "", "chatcmpl-b"));
  EXPECT_EQ(stream->resumption().target, kChat) << "the client has a call";
  stream->change_worker();
  EXPECT_EQ(stream.take(role("chatcmpl-b") + chat(R"("content":"a")", "30", "", "chatcmpl-b") +
                        chat(R"("tool_calls":[{"index":0,"function":{"arguments":"{1}"}}])",
                             "31,32", "", "chatcmpl-b")),
            event(R"({"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m",)"
                  R"("choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":)"
                  R"({"arguments":"1}"}}]},"logprobs":null,"finish_reason":null,)"
                  R"("token_ids":null}]})"));
}

TEST(EngineStream, IsNeverMixedFromTwoAnswers) {
  for (const std::string_view other : {"30,99", "30", "3", "31,30"}) {
    Stream stream(kCompletions, R"({"prompt":"Hi","temperature":0,"stop":"x"})");
    stream.take(completion(" a", "30", "", "1") + completion(" b", "31"));
    stream->change_worker();
    const std::string got = stream.take(completion(" a", other, "stop", "1", "cmpl-b"));
    EXPECT_EQ(got, "") << other;
    EXPECT_TRUE(stream->broken()) << other;
    EXPECT_EQ(stream->obstacle(), Obstacle::kDiffers) << other;
  }
}

TEST(EngineStream, GoesOnInReasoningOnlyByRepeating) {
  const std::string think = R"("reasoning_content":"hm")";
  Stream drawn(kChat, R"({"messages":[],"temperature":0.6})");
  drawn.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-a", "1") +
             chat(think, "30"));
  EXPECT_EQ(drawn->obstacle(), Obstacle::kReasoning);
  drawn.take(chat(R"("content":"so")", "31"));
  EXPECT_EQ(drawn->obstacle(), Obstacle::kNone) << "the answer has begun";
  Stream greedy(kChat, R"({"messages":[],"temperature":0})");
  greedy.take(chat(R"("role":"assistant","content":"")", "", "", "chatcmpl-a", "1") +
              chat(think, "30"));
  EXPECT_EQ(greedy->resumption().target, kChat);
}

TEST(EngineStream, KeepsAnEnginesFailureFromTheClientIfAnotherOneCanGoOn) {
  const std::string failure = event(
      R"({"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}})");
  Stream stream(kCompletions, R"({"prompt":"Hi"})");
  stream.take(completion(" a", "30", "", "1"));
  EXPECT_EQ(stream.take(failure + event("[DONE]")), "");
  EXPECT_TRUE(stream->broken());
  EXPECT_TRUE(stream->resumable());
  stream->change_worker();
  EXPECT_FALSE(stream->broken());
  Stream cut(kCompletions, R"({"prompt":"Hi","stop":"x"})");
  cut.take(completion(" a", "30", "", "1"));
  EXPECT_EQ(cut.take(failure), failure);
  EXPECT_FALSE(cut->broken());
}

TEST(EngineStream, EndsAStreamWhoseLastTokenIsThrough) {
  Stream stream(kCompletions, R"({"prompt":"Hi","stream_options":{"include_usage":true}})");
  stream.take(completion(" a", "30", "", "1,2,3"));
  EXPECT_EQ(stream.finish(), "") << "tokens are missing";
  stream.take(completion(" b", "31", "stop"));
  EXPECT_EQ(stream.finish(),
            event(R"({"id":"cmpl-a","object":"text_completion","created":7,"model":"m",)"
                  R"("choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,)"
                  R"("total_tokens":5}})") +
                event("[DONE]"));
  EXPECT_TRUE(stream->complete());
}

TEST(EngineStream, PassesWhatHasNoTokens) {
  Stream stream(kCompletions, R"({"prompt":"Hi"})");
  EXPECT_EQ(stream.take(completion(" a", "")), completion(" a", ""));
  EXPECT_EQ(stream->obstacle(), Obstacle::kNoTokens);
  EXPECT_EQ(stream.take("whatever"), "whatever");
  std::string out;
  stream->take("0\r\n\r\n", out);
  EXPECT_EQ(out, "0\r\n\r\n");
  EXPECT_TRUE(stream->complete());
}

TEST(EngineStream, DoesNotGoOnBehindItsLimit) {
  Stream stream(kCompletions, R"({"prompt":"Hi","max_tokens":2})");
  stream.take(completion(" a", "30", "", "1") + completion(" b", "31"));
  EXPECT_EQ(stream->obstacle(), Obstacle::kNoTokens) << "only its end is missing";
}

TEST(EngineStream, DoesNotEndWhereARepeatingEngineEndsBeforeTheClient) {
  Stream stream(kCompletions, R"({"prompt":"Hi","temperature":0,"stop":"x"})");
  stream.take(completion(" a", "30", "", "1") + completion(" b", "31"));
  stream->change_worker();
  EXPECT_EQ(stream.take(completion(" a", "30", "", "1", "cmpl-b") + event("[DONE]")), "");
  EXPECT_EQ(stream->obstacle(), Obstacle::kDiffers);
}

TEST(EngineStream, EndsWhereItsEngineSaysSo) {
  Stream stream(kCompletions, R"({"prompt":"Hi"})");
  EXPECT_EQ(stream.take(completion(" a", "30", "", "1") + event("[DONE]")),
            completion(" a", "") + event("[DONE]"));
  stream.end();
  EXPECT_TRUE(stream->complete()) << "an engine may tell no reason";
  Stream cut(kCompletions, R"({"prompt":"Hi"})");
  cut.take(completion(" a", "30", "", "1"));
  std::string out;
  cut->take("0\r\n\r\n", out);
  EXPECT_TRUE(cut->broken()) << "its body ended, and its answer did not";
}

TEST(EngineStream, IsNotBegunAnewBehindEventsThatItDoesNotKnow) {
  const std::string unknown = event(R"({"choices":[{"index":0,"delta":{"audio":"aa"}}]})");
  Stream stream(kChat, R"({"messages":[],"temperature":0})");
  EXPECT_EQ(stream.take(unknown), unknown);
  EXPECT_EQ(stream->obstacle(), Obstacle::kNoTokens);
}

TEST(EngineStream, ReadsNoKeyInsideOfText) {
  Stream stream(kCompletions, R"({"prompt":"Hi"})");
  const std::string text = R"(say \"token_ids\":[7] and \"finish_reason\":\"stop\")";
  EXPECT_EQ(stream.take(completion(text, "30", "", "1")), completion(text, ""));
  EXPECT_EQ(stream->resumption().body,
            R"({"prompt":[1,30],"max_tokens":15,"return_token_ids":true})");
}

}  // namespace
}  // namespace pdjob::router
