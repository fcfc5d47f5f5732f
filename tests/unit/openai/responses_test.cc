#include "openai/responses.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/limits.h"
#include "openai/openai_sampling.h"

namespace pdjob::openai {
namespace {

using nlohmann::json;

ApiRequest parsed(const std::string& body) {
  auto result = parse_api_request(ApiKind::kResponses, body);
  if (!result) {
    ADD_FAILURE() << result.error().message << " for " << body;
    return {};
  }
  return *std::move(result);
}
// Beside an input.
ApiRequest with(const std::string& fields) { return parsed(R"({"input":"hi",)" + fields + "}"); }

// The field and the message.
std::string refusal_of(const std::string& body) {
  const auto result = parse_api_request(ApiKind::kResponses, body);
  return result ? "accepted" : result.error().message;
}
std::string refusal_with(const std::string& fields) {
  return refusal_of(R"({"input":"hi",)" + fields + "}");
}
std::string refusal_of_item(const std::string& item) {
  return refusal_of(R"({"input":[)" + item + "]}");
}

json settings_of(const ApiRequest& request) {
  return json::parse("{" + request.response_settings + "}");
}

// "user: hi; assistant: [f(x) as 1]"
std::string chat_of(const ApiRequest& request) {
  std::string chat;
  for (const ApiMessage& message : request.messages) {
    chat += chat.empty() ? "" : "; ";
    chat += message.role + ": " + message.content;
    for (const ApiToolCall& call : message.tool_calls) {
      chat.append("[").append(call.name).append("(").append(call.arguments).append(") as ");
      chat.append(call.id).append("]");
    }
    chat += message.tool_call_id.empty() ? "" : " for " + message.tool_call_id;
  }
  return chat;
}

TEST(ResponsesRequest, IsAChat) {
  EXPECT_EQ(chat_of(parsed(R"({"input":"hi"})")), "user: hi");
  EXPECT_EQ(chat_of(parsed(R"({"input":"hi","instructions":"Be brief."})")),
            "system: Be brief.; user: hi");
  EXPECT_EQ(chat_of(parsed(
                R"({"input":[{"role":"developer","content":"d"},{"type":"message","role":"user",
           "content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
           {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":
           [{"type":"output_text","text":"c","annotations":[]},{"type":"refusal","refusal":"no"}]}]})")),
            "developer: d; user: a\nb; assistant: c\nno");
}

TEST(ResponsesRequest, CallsBelongToTheMessageBeforeThem) {
  const std::string call = R"({"type":"function_call","id":"fc_1","call_id":"1","name":"f",
    "arguments":"x","status":"completed"},)";
  const std::string again = R"({"type":"function_call","call_id":"2","name":"g","arguments":"y"},)";
  const std::string outputs = R"({"type":"function_call_output","call_id":"1","output":"u"},
    {"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"v"}]})";
  const std::string user = R"({"role":"user","content":"q"},)";
  EXPECT_EQ(chat_of(parsed(R"({"input":[)" + user + call + again + outputs + "]}")),
            "user: q; assistant: [f({\"arguments\":\"x\"}) as 1][g({\"arguments\":\"y\"}) as 2]; "
            "tool: u for 1; tool: v for 2");
  const std::string text = R"({"role":"assistant","content":"Wait."},)";
  EXPECT_EQ(
      chat_of(parsed(R"({"input":[)" + user + text + call + outputs + "]}")),
      "user: q; assistant: Wait.[f({\"arguments\":\"x\"}) as 1]; tool: u for 1; tool: v for 2");
}

TEST(ResponsesRequest, EarlierReasoningIsLeftOut) {
  EXPECT_EQ(chat_of(parsed(R"({"input":[{"type":"reasoning","summary":[]},
    {"role":"user","content":"q"}]})")),
            "user: q");
  EXPECT_EQ(refusal_of_item(R"({"type":"reasoning","summary":[]})"),
            "input: must have at least one message");
}

TEST(ResponsesRequest, RefusesItemsThatItCannotRead) {
  EXPECT_EQ(refusal_of("{}"), "input: must be a string or a list of items");
  EXPECT_EQ(refusal_of(R"({"input":[]})"), "input: must have at least one message");
  EXPECT_EQ(refusal_of_item("1"), "input[0]: must be an object, got 1");
  EXPECT_EQ(refusal_of_item(R"({"role":"tool","content":"x"})"),
            R"(input[0].role: must be one of user, assistant, system, developer, got "tool")");
  EXPECT_EQ(refusal_of_item(R"({"role":"user"})"),
            "input[0].content: must be a string or a list of text parts");
  EXPECT_EQ(
      refusal_of_item(R"({"role":"user","content":[{"type":"input_image","image_url":"x"}]})"),
      R"(input[0].content[0]: must be of type "text", got "input_image")");
  EXPECT_EQ(
      refusal_of_item(R"({"type":"item_reference","id":"msg_1"})"),
      R"(input[0].type: "item_reference" is not supported: nothing is stored, so send the item itself (clients do so with store: false))");
  EXPECT_EQ(
      refusal_of_item(R"({"type":"computer_call"})"),
      R"(input[0].type: must be one of message, function_call, function_call_output, reasoning, got "computer_call")");
  EXPECT_EQ(refusal_of_item(R"({"type":"function_call","name":"a b"})").substr(0, 13),
            "input[0].name");
}

TEST(ResponsesRequest, CallsInARowAreBounded) {
  std::string calls;
  for (size_t i = 0; i <= limits::kToolsMax; ++i) {
    calls += i == 0 ? "" : ",";
    calls += R"({"type":"function_call","name":"f","call_id":"1"})";
  }
  EXPECT_EQ(refusal_of_item(calls).substr(0, 15), "input[128].type");
}

TEST(ResponsesRequest, ReadsItsLimitsAndSampling) {
  const ApiRequest request = with(
      R"("max_output_tokens":7,"temperature":0.5,"top_p":0.25,"seed":3,"top_k":4,"stream":true,
         "stop":"x","cache_salt":"s")");
  EXPECT_EQ(request.stop.max_tokens, 7);
  EXPECT_FALSE(request.fills_context);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_TRUE(request.seeded);
  EXPECT_EQ(request.sampling.top_k, 4);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.stop.strings, std::vector<std::string>{"x"});
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_TRUE(parsed(R"({"input":"hi"})").fills_context);
  EXPECT_TRUE(with(R"("max_output_tokens":null)").fills_context);
}

TEST(ResponsesRequest, LogprobsAreIncludedOrCounted) {
  EXPECT_EQ(parsed(R"({"input":"hi"})").sampling.logprobs, -1);
  EXPECT_EQ(with(R"("include":["message.output_text.logprobs"])").sampling.logprobs, 0);
  EXPECT_EQ(with(R"("top_logprobs":3)").sampling.logprobs, 3);
  EXPECT_EQ(with(R"("include":["reasoning.encrypted_content"],"top_logprobs":0)").sampling.logprobs,
            -1);
  EXPECT_EQ(refusal_with(R"("include":["logs"])").substr(0, 7), "include");
}

TEST(ResponsesRequest, TextFormatsAreStructures) {
  EXPECT_EQ(with(R"("text":{"format":{"type":"text"}})").sampling.json_schema, "");
  EXPECT_EQ(with(R"("text":{"format":{"type":"json_object"}})").sampling.json_schema,
            R"({"type":"object"})");
  const ApiRequest request = with(
      R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type": "object"},"strict":true}})");
  EXPECT_EQ(request.sampling.json_schema, R"({"type":"object"})");
  EXPECT_EQ(settings_of(request)["text"]["format"]["schema"], json::parse(R"({"type":"object"})"));
  EXPECT_EQ(refusal_with(R"("text":{"format":{"type":"json_schema"}})"),
            "text.format.schema: is missing");
  EXPECT_EQ(refusal_with(R"("text":{"format":{"type":"grammar"}})"),
            R"(text.format.type: must be one of text, json_object, json_schema, got "grammar")");
  EXPECT_EQ(refusal_with(R"("text":{"verbosity":"loud"})"),
            R"(text.verbosity: must be one of low, medium, high, got "loud")");
}

TEST(ResponsesRequest, ToolsAreFlat) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}},
         {"type":"function","name":"g","description":"d","strict":false}])";
  const ApiRequest request = with(tools + R"(,"tool_choice":{"type":"function","name":"g"})");
  ASSERT_EQ(request.tools.size(), 2U);
  EXPECT_EQ(request.callable_tools, std::vector<size_t>{1});
  EXPECT_TRUE(request.must_call_tool);
  EXPECT_EQ(settings_of(request)["tool_choice"], json::parse(R"({"type":"function","name":"g"})"));
  EXPECT_EQ(
      settings_of(request)["tools"],
      json::parse(
          R"([{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":false},
              {"type":"function","name":"g","description":"d","parameters":null,"strict":false}])"));
  EXPECT_TRUE(with(tools + R"(,"tool_choice":"none")").tools.empty());
  EXPECT_EQ(refusal_with(R"("tools":[{"type":"web_search"}])"),
            R"(tools[0].type: must be "function", the only kind of tool here, got "web_search")");
  const std::string allowed =
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]})";
  const ApiRequest some = with(tools + R"(,"tool_choice":)" + allowed);
  EXPECT_EQ(some.callable_tools, std::vector<size_t>{1});
  EXPECT_EQ(settings_of(some)["tool_choice"], json::parse(allowed));
  EXPECT_EQ(refusal_with(R"("tools":[{"type":"function","function":{"name":"f"}}])").substr(0, 13),
            "tools[0].name");
}

TEST(ResponsesRequest, NothingThatNeedsAStoreIsAcceptedInSilence) {
  for (const char* field :
       {R"("previous_response_id":"resp_1")", R"("conversation":"c")", R"("background":true)",
        R"("prompt":{"id":"p"})", R"("context_management":[{"type":"compaction"}])",
        R"("moderation":{"model":"m"})", R"("echo":true)"}) {
    const std::string refusal = refusal_with(field);
    EXPECT_TRUE(refusal.ends_with("is not supported")) << refusal;
  }
  EXPECT_EQ(refusal_with(R"("truncation":"auto")"),
            R"(truncation: must be one of disabled, got "auto")");
  EXPECT_EQ(refusal_with(R"("max_tokens":1)"),
            "max_tokens: is a field of chats: use max_output_tokens");
  EXPECT_EQ(refusal_with(R"("n":2)").substr(0, 2), "n:");
  EXPECT_EQ(refusal_with(R"("stream":true,"stream_options":{"include_obfuscation":true})"),
            "stream_options.include_obfuscation: true is not supported here");
  with(R"("previous_response_id":null,"background":false,"truncation":"disabled","n":1)");
}

TEST(ResponsesRequest, AReplySaysWhatHadNoEffect) {
  const json said = settings_of(
      with(R"("store":true,"service_tier":"flex","reasoning":{"effort":"high"},"user":"u",
              "metadata":{"a":"b"},"max_tool_calls":3,"prompt_cache_key":"k")"));
  EXPECT_EQ(said["store"], false);
  EXPECT_EQ(said["service_tier"], "flex");
  EXPECT_EQ(said["reasoning"]["effort"], "high");
  EXPECT_EQ(said["max_tool_calls"], nullptr);
  EXPECT_EQ(said["metadata"], json::parse(R"({"a":"b"})"));
  EXPECT_EQ(said["user"], "u");
  EXPECT_EQ(refusal_with(R"("metadata":{"a":1})").substr(0, 9), "metadata:");
  EXPECT_EQ(refusal_with(R"("metadata":{"a":")" + std::string(513, 'x') + R"("})").substr(0, 9),
            "metadata:");
  EXPECT_EQ(refusal_with(R"("service_tier":"gold")").substr(0, 13), "service_tier:");
}

TEST(ResponsesRequest, AReplyRepeatsNoMoreThanAStreamCanCarry) {
  const json brief = settings_of(with(R"("instructions":"x")"));
  EXPECT_EQ(brief["instructions"], "x");
  const std::string text(kRepeatedBytesMax, 'x');
  const ApiRequest request = with(R"("instructions":")" + text + '"');
  EXPECT_EQ(request.messages.front().content, text);
  EXPECT_EQ(settings_of(request)["instructions"], nullptr);
}

// --- Replies

// Token 1 is "Hi", any other one "<N>".
void append_piece(Token token, std::string& out) {
  out += token == 1 ? "Hi" : "<" + std::to_string(token) + ">";
}

ResponsesReplyWriter writer_of(bool logprobs = false) {
  return {{.kind = ApiKind::kResponses,
           .id = "7",
           .model = "m",
           .created = 5,
           .logprobs = logprobs,
           .response_settings = R"("store":false)"},
          append_piece};
}
constexpr Usage kUsage = {
    .prompt_tokens = 4, .cached_tokens = 3, .completion_tokens = 2, .ended = 9};

// The events of a stream. They are numbered, and each has its type as its name.
std::vector<json> events_of(std::string_view stream) {
  std::vector<json> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const std::string_view event = stream.substr(at, end - at);
    const size_t line = event.find('\n');
    EXPECT_TRUE(event.starts_with("event: ") && event.substr(line).starts_with("\ndata: "));
    json& parsed = events.emplace_back(json::parse(event.substr(line + 7)));
    EXPECT_EQ(parsed["type"], event.substr(7, line - 7));
    EXPECT_EQ(parsed["sequence_number"], events.size() - 1);
    at = end + 2;
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<json>& events) {
  std::vector<std::string> types;
  types.reserve(events.size());
  for (const json& event : events) {
    types.push_back(event["type"].get<std::string>().substr(std::string("response.").size()));
  }
  return types;
}
using Types = std::vector<std::string>;

TEST(ResponsesReply, AStreamOpensAndClosesItsMessage) {
  ResponsesReplyWriter writer = writer_of();
  std::string out;
  writer.append_part(out, {});
  EXPECT_EQ(out, "") << "text that is held back";
  writer.append_part(out, {.text = "Hi"});
  writer.append_part(out, {.text = " you"});
  writer.append_part(out, {.finish = FinishReason::kStop});
  writer.append_end(out, kUsage);
  const std::vector<json> events = events_of(out);
  EXPECT_EQ(types_of(events),
            (Types{"created", "in_progress", "output_item.added", "content_part.added",
                   "output_text.delta", "output_text.delta", "output_text.done",
                   "content_part.done", "output_item.done", "completed"}));
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], json::array());
  EXPECT_EQ(events[2]["item"]["content"], json::array());
  EXPECT_EQ(
      events[5],
      json::parse(
          R"({"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_7_0","output_index":0,
              "content_index":0,"delta":" you","logprobs":[]})"));
  EXPECT_EQ(events[6]["text"], "Hi you");
  EXPECT_EQ(
      events.back()["response"],
      json::parse(
          R"({"id":"resp_7","object":"response","created_at":5,"status":"completed","completed_at":9,
              "error":null,"incomplete_details":null,"model":"m","output":[{"id":"msg_7_0",
              "type":"message","status":"completed","role":"assistant","content":[{"type":"output_text",
              "text":"Hi you","annotations":[],"logprobs":[]}]}],"usage":{"input_tokens":4,
              "input_tokens_details":{"cached_tokens":3,"cache_write_tokens":0},"output_tokens":2,
              "output_tokens_details":{"reasoning_tokens":0},"total_tokens":6},"store":false})"));
}

TEST(ResponsesReply, AWholeReplyIsTheResponseOfAStream) {
  const std::vector<ToolCallPart> calls = {
      {.index = 0, .id = "call_1", .name = "f", .arguments = "{}"},
      {.index = 1, .id = "call_2", .name = "g", .arguments = R"({"a":1})"}};
  const ReplyPart part = {
      .text = "Hi", .finish = FinishReason::kStop, .calls = calls, .ends_in_calls = true};
  std::string whole;
  writer_of().append_whole(whole, {&part, 1}, kUsage, {});
  std::string stream;
  ResponsesReplyWriter writer = writer_of();
  writer.append_part(stream, part);
  writer.append_end(stream, kUsage);
  EXPECT_EQ(json::parse(whole), events_of(stream).back()["response"]);
  EXPECT_EQ(json::parse(whole)["output"][2],
            json::parse(
                R"({"id":"fc_7_2","type":"function_call","status":"completed","call_id":"call_2",
                           "name":"g","arguments":"{\"a\":1}"})"));
}

TEST(ResponsesReply, CallsAreItemsAndComeInParts) {
  ResponsesReplyWriter writer = writer_of();
  const std::vector<ToolCallPart> begin = {{.index = 0, .id = "call_1", .name = "f"}};
  const std::vector<ToolCallPart> more = {{.index = 0, .arguments = "{\"a\":"}};
  const std::vector<ToolCallPart> next = {{.index = 0, .arguments = "1}"},
                                          {.index = 1, .id = "call_2", .name = "g"}};
  const std::vector<ToolCallPart> last = {{.index = 1, .arguments = "{}"}};
  std::string out;
  writer.append_part(out, {.text = "Wait."});
  writer.append_part(out, {.calls = begin});
  writer.append_part(out, {.calls = more});
  writer.append_part(out, {.calls = next});
  writer.append_part(out, {.finish = FinishReason::kStop, .calls = last, .ends_in_calls = true});
  writer.append_end(out, kUsage);
  const std::vector<json> events = events_of(out);
  EXPECT_EQ(types_of(events),
            (Types{"created", "in_progress", "output_item.added", "content_part.added",
                   "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
                   "output_item.added", "function_call_arguments.delta",
                   "function_call_arguments.delta", "function_call_arguments.done",
                   "output_item.done", "output_item.added", "function_call_arguments.delta",
                   "function_call_arguments.done", "output_item.done", "completed"}));
  EXPECT_EQ(events[8]["item"]["arguments"], "");
  EXPECT_EQ(events[8]["item"]["call_id"], "call_1");
  EXPECT_EQ(events[11]["arguments"], R"({"a":1})");
  EXPECT_EQ(events[12]["item"]["status"], "completed");
  EXPECT_EQ(events[13]["output_index"], 2);
  EXPECT_EQ(events.back()["response"]["output"].size(), 3U);
}

TEST(ResponsesReply, TheEndSaysWhatCutIt) {
  const auto ended = [](const ReplyPart& part) {
    ResponsesReplyWriter writer = writer_of();
    std::string out;
    writer.append_part(out, part);
    writer.append_end(out, kUsage);
    return events_of(out).back();
  };
  json end = ended({.text = "Hi", .finish = FinishReason::kLength});
  EXPECT_EQ(end["type"], "response.incomplete");
  EXPECT_EQ(end["response"]["status"], "incomplete");
  EXPECT_EQ(end["response"]["completed_at"], nullptr);
  EXPECT_EQ(end["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(end["response"]["output"][0]["status"], "incomplete");

  end = ended({.text = "Hi", .finish = FinishReason::kAbort});
  EXPECT_EQ(end["type"], "response.incomplete");
  EXPECT_EQ(end["response"]["status"], "cancelled");
  EXPECT_EQ(end["response"]["incomplete_details"], nullptr);

  end = ended({.finish = FinishReason::kStop});
  EXPECT_EQ(end["type"], "response.completed");
  EXPECT_EQ(end["response"]["output"][0]["content"][0]["text"], "");

  const std::vector<ToolCallPart> half = {
      {.index = 0, .id = "call_1", .name = "f", .arguments = "{"}};
  end = ended({.finish = FinishReason::kLength, .calls = half});
  EXPECT_EQ(end["response"]["output"][0]["status"], "incomplete");
  end = ended({.finish = FinishReason::kLength, .calls = half, .ends_in_calls = true});
  EXPECT_EQ(end["response"]["output"][0]["status"], "completed");
}

TEST(ResponsesReply, AStreamThatFailsSaysSo) {
  ResponsesReplyWriter writer = writer_of();
  std::string out;
  writer.append_part(out, {.text = "Hi"});
  writer.append_error(out, to_api_error({ErrorCode::kUnavailable, "gone"}));
  const json end = events_of(out).back();
  EXPECT_EQ(end["type"], "response.failed");
  EXPECT_EQ(end["response"]["status"], "failed");
  EXPECT_EQ(end["response"]["error"], json::parse(R"({"code":"server_error","message":"gone"})"));
  EXPECT_EQ(end["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(end["response"]["usage"], nullptr);
}

TEST(ResponsesReply, LogprobsComeWithTheTextOfTheirTokens) {
  const std::vector<GeneratedToken> first = {{.token = 4, .logprob = -1}};
  const std::vector<GeneratedToken> second = {{.token = 1, .logprob = -0.5F, .top = {{1, -0.5F}}}};
  ResponsesReplyWriter writer = writer_of(/*logprobs=*/true);
  std::string out;
  writer.append_part(out, {.tokens = first});
  EXPECT_EQ(out, "");
  writer.append_part(out, {.text = "<4>Hi", .tokens = second, .finish = FinishReason::kStop});
  writer.append_end(out, kUsage);
  const std::vector<json> events = events_of(out);
  EXPECT_EQ(events[4]["logprobs"],
            json::parse(
                R"([{"token":"<4>","logprob":-1,"bytes":[60,52,62],"top_logprobs":[]},
              {"token":"Hi","logprob":-0.5,"bytes":[72,105],
               "top_logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105]}]}])"));
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["logprobs"], json::array())
      << "a worker that continues the stream does not know the earlier ones";
}

// Regression guard: a worker that continues a stream writes the parts that the client has again,
// and throws them away.
TEST(ResponsesReply, AContinuedStreamGoesOnWithTheNextNumber) {
  const auto parts = [] {
    return std::vector<ReplyPart>{{.text = "a"}, {}, {.text = "b"}, {.text = "c"}};
  };
  std::string undisturbed;
  ResponsesReplyWriter writer = writer_of();
  for (const ReplyPart& part : parts()) {
    writer.append_part(undisturbed, part);
  }
  writer.append_end(undisturbed, kUsage);
  for (size_t known = 1; known < parts().size(); ++known) {
    std::string out;
    ResponsesReplyWriter before = writer_of();
    ResponsesReplyWriter after = writer_of();
    std::string thrown_away;
    for (size_t i = 0; i < parts().size(); ++i) {
      if (i < known) {
        before.append_part(out, parts()[i]);
      }
      after.append_part(i < known ? thrown_away : out, parts()[i]);
    }
    after.append_end(out, kUsage);
    EXPECT_EQ(out, undisturbed);
  }
}

TEST(ResponsesReply, ARequestThatIsAbortedEarlyHasAReply) {
  const ApiRequest request = with(R"("stream":true)");
  ReplyOptions options = reply_options(request);
  options.id = "7";
  const std::vector<json> events = events_of(aborted_reply(request, options, {}));
  EXPECT_EQ(events.back()["response"]["status"], "cancelled");
}

TEST(ResponsesReply, APrefillWorkerAddsWhereItsKvIs) {
  const ReplyPart part = {.finish = FinishReason::kLength};
  std::string whole;
  writer_of().append_whole(whole, {&part, 1}, kUsage, R"({"a":1})");
  EXPECT_EQ(json::parse(whole)["kv_transfer_params"], json::parse(R"({"a":1})"));
}

}  // namespace
}  // namespace pdjob::openai
