#include "openai/openai.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "openai/json/json_number.h"
#include "tests/unit/openai/api_requests.h"

namespace pdjob::openai {
namespace {

TEST(ParseApiRequest, DefaultsAreOpenAis) {
  const ApiRequest request = completion("");
  EXPECT_EQ(request.prompts, std::vector<std::string>{"hi"});
  EXPECT_EQ(request.sampling, SamplingParams{});
  EXPECT_EQ(request.stop, StopParams{});
  EXPECT_FALSE(request.fills_context);
  EXPECT_FALSE(request.seeded);
  EXPECT_FALSE(request.kv_transfer);
  EXPECT_EQ(request.choices, 1U);
}

TEST(ParseApiRequest, ReadsEverySamplingField) {
  const ApiRequest request = completion(
      R"("temperature":0,"top_p":0.5,"top_k":40,"min_p":0.1,"presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1.5,
         "logit_bias":{"7":-100,"3":1.5},"seed":42,"ignore_eos":true,"logprobs":5)");
  const SamplingParams expected = {.temperature = 0,
                                   .top_k = 40,
                                   .top_p = 0.5F,
                                   .min_p = 0.1F,
                                   .repetition_penalty = 1.5F,
                                   .presence_penalty = -2,
                                   .frequency_penalty = 2,
                                   .logit_bias = {{3, 1.5F}, {7, -100}},
                                   .seed = 42,
                                   .grammar = "",
                                   .json_schema = "",
                                   .logprobs = 5,
                                   .ignore_eos = true};
  EXPECT_EQ(request.sampling, expected);
  EXPECT_TRUE(request.seeded);
}

TEST(ParseApiRequest, ReadsStopAndReplyFields) {
  const ApiRequest request = completion(
      R"("model":"m","max_tokens":9,"min_tokens":2,"stop":["a","b"],"stop_token_ids":[1,2],"include_stop_str_in_output":true,
         "skip_special_tokens":false,"n":3,"best_of":3,"echo":true,"stream":true,"stream_options":{"include_usage":true},
         "return_token_ids":true,"return_tokens_as_token_ids":true,"cache_salt":"ours")");
  EXPECT_EQ(request.cache_salt, "ours");
  EXPECT_EQ(request.model, "m");
  const StopParams expected = {.max_tokens = 9,
                               .min_tokens = 2,
                               .strings = {"a", "b"},
                               .token_ids = {1, 2},
                               .include_stop_string = true,
                               .skip_special_tokens = false};
  EXPECT_EQ(request.stop, expected);
  EXPECT_EQ(request.choices, 3U);
  EXPECT_TRUE(request.echo && request.stream && request.include_usage && request.return_token_ids &&
              request.tokens_as_ids);
  EXPECT_EQ(completion(R"("stop":"x")").stop.strings, std::vector<std::string>{"x"});
}

TEST(ParseApiRequest, NullMeansAbsent) {
  EXPECT_EQ(
      completion(
          R"("temperature":null,"top_k":null,"stop":null,"logit_bias":null,"seed":null,"logprobs":null,"stream":null,
      "response_format":null,"kv_transfer_params":null,"suffix":null,"prompt_logprobs":null,"max_tokens":null)")
          .sampling,
      SamplingParams{});
}

TEST(ParseApiRequest, IgnoresFieldsItDoesNotKnow) {
  chat(
      R"("user":"u","store":true,"metadata":{"a":"b"},"service_tier":"auto","cache_salt":"x","priority":1,"whatever":[[[1]]])");
}

TEST(ParseApiRequest, TheLastOfTwoEqualFieldsCounts) {
  EXPECT_EQ(completion(R"("max_tokens":5,"max_tokens":7)").stop.max_tokens, 7);
}

TEST(ParseApiRequest, ChatTakesMaxCompletionTokensFirst) {
  const ApiRequest request = chat(R"("max_completion_tokens":5,"max_tokens":7)");
  EXPECT_EQ(request.stop.max_tokens, 5);
  EXPECT_FALSE(request.fills_context);
  EXPECT_TRUE(chat("").fills_context);
}

TEST(ParseApiRequest, SeedsAreSigned64BitIntegers) {
  EXPECT_EQ(completion(R"("seed":-2)").sampling.seed, std::numeric_limits<uint64_t>::max() - 1);
  EXPECT_TRUE(completion(R"("seed":-2)").seeded);
  EXPECT_EQ(completion(R"("seed":-9223372036854775808)").sampling.seed, uint64_t{1} << 63);
  EXPECT_NE(completion_refusal(R"("seed":9223372036854775808)"), "accepted");
}

TEST(ParseApiRequest, IntegersMayBeWrittenWithAPoint) {
  EXPECT_EQ(completion(R"("max_tokens":16.0)").stop.max_tokens, 16);
  EXPECT_NE(completion_refusal(R"("max_tokens":16.5)"), "accepted");
}

TEST(ParseApiRequest, TopKMinusOneIsOff) {
  EXPECT_EQ(completion(R"("top_k":-1)").sampling.top_k, 0);
}

TEST(ParseApiRequest, ErrorsNameTheFieldTheRangeAndWhatCame) {
  EXPECT_EQ(completion_refusal(R"("temperature":2.5)"),
            "temperature | temperature: must be a number from 0 to 2, got 2.5");
  EXPECT_EQ(completion_refusal(R"("temperature":"hot")"),
            "temperature | temperature: must be a number from 0 to 2, got \"hot\"");
  EXPECT_EQ(completion_refusal(R"("top_p":-1)"),
            "top_p | top_p: must be a number from 0 to 1, got -1");
  EXPECT_EQ(completion_refusal(R"("top_k":-2)"),
            "top_k | top_k: must be an integer from -1 to 2147483647, got -2");
  EXPECT_EQ(completion_refusal(R"("stream":1)"), "stream | stream: must be true or false, got 1");
  EXPECT_EQ(completion_refusal(R"("model":{})"), "model | model: must be a string, got an object");
  EXPECT_EQ(completion_refusal(R"("logprobs":-1)"),
            "logprobs | logprobs: must be an integer from 0 to 20, got -1");
  EXPECT_EQ(completion_refusal(R"("logprobs":true)"),
            "logprobs | logprobs: must be an integer from 0 to 20, got true");
  EXPECT_EQ(completion_refusal(R"("max_tokens":0)"),
            "max_tokens | max_tokens: must be at least 1, or -1 for as many as fit, got 0");
  EXPECT_EQ(completion_refusal(R"("min_tokens":20)"),
            "min_tokens | min_tokens: must be at most max_tokens, 16, got 20");
  EXPECT_EQ(completion_refusal(R"("stop":["a",3])"), "stop[1] | stop[1]: must be a string, got 3");
  EXPECT_EQ(completion_refusal("\"stop\":\"" + std::string(1025, 's') + "\""),
            "stop | stop: must be strings of at most 1024 bytes, got 1025");
  EXPECT_EQ(completion_refusal(R"("stop_token_ids":[-1])"),
            "stop_token_ids[0] | stop_token_ids[0]: must be a token id, got -1");
  EXPECT_EQ(completion_refusal(R"("logit_bias":{"x":1})"),
            "logit_bias | logit_bias: must have token ids as names, got \"x\"");
  EXPECT_EQ(completion_refusal(R"("logit_bias":{"1":101})"),
            "logit_bias.1 | logit_bias.1: must be a number from -100 to 100, got 101");
  EXPECT_EQ(completion_refusal(R"("best_of":2)"),
            "best_of | best_of: must be equal to n: picking the best is not supported");
  EXPECT_EQ(completion_refusal(R"("stream_options":{})"),
            "stream_options | stream_options: must only be given with stream");
  EXPECT_EQ(completion_refusal(R"("stream":true,"stream_options":{"include_usage":"yes"})"),
            "stream_options.include_usage | stream_options.include_usage: must be true or false, "
            "got \"yes\"");
}

TEST(ParseApiRequest, NumbersThatRoundToAForbiddenOneAreRefused) {
  EXPECT_NE(completion_refusal(R"("repetition_penalty":1e-60)"), "accepted");
  EXPECT_NE(completion_refusal(R"("repetition_penalty":1e300)"), "accepted");
}

TEST(ParseApiRequest, ListsAreBounded) {
  std::string stops;
  for (size_t i = 0; i <= limits::kStopStringsMax; ++i) {
    stops += i == 0 ? "\"a\"" : ",\"a\"";
  }
  EXPECT_EQ(completion_refusal("\"stop\":[" + stops + "]"),
            "stop | stop: must have at most 64 elements, got 65");
  std::string fields;
  for (size_t i = 0; i <= limits::kJsonFieldsMax; ++i) {
    fields += (i == 0 ? "\"f" : ",\"f") + std::to_string(i) + "\":0";
  }
  EXPECT_EQ(completion_refusal(fields), " | the body has an object of more than 256 fields");
}

TEST(ParseLogprobs, ChatHasASwitchAndACount) {
  EXPECT_EQ(chat("").sampling.logprobs, -1);
  EXPECT_EQ(chat(R"("logprobs":true)").sampling.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").sampling.logprobs, 20);
  EXPECT_EQ(chat(R"("logprobs":false,"top_logprobs":0)").sampling.logprobs, -1);
  EXPECT_EQ(chat_refusal(R"("top_logprobs":2)"),
            "top_logprobs | top_logprobs: needs logprobs to be true");
  EXPECT_NE(chat_refusal(R"("logprobs":1)"), "accepted");
  EXPECT_EQ(completion(R"("logprobs":0)").sampling.logprobs, 0);
}

TEST(ParsePrompt, TakesTextsAndTokens) {
  const auto prompt = [](const std::string& json) {
    return parsed(ApiKind::kCompletion, "{\"prompt\":" + json + "}");
  };
  EXPECT_EQ(prompt(R"("")").prompts, std::vector<std::string>{""});
  EXPECT_EQ(prompt(R"(["a","b"])").prompts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(prompt("[1,2]").token_prompts, (std::vector<std::vector<Token>>{{1, 2}}));
  EXPECT_EQ(prompt("[[1],[2,3]]").token_prompts, (std::vector<std::vector<Token>>{{1}, {2, 3}}));
  EXPECT_TRUE(prompt("[[1],[2,3]]").prompts.empty());
}

TEST(ParsePrompt, TakesTokensThatAreWrittenAsNumbersWithAPoint) {
  EXPECT_EQ(parsed(ApiKind::kCompletion, R"({"prompt":[1.0,2e1,3]})").token_prompts,
            (std::vector<std::vector<Token>>{{1, 20, 3}}));
  EXPECT_EQ(refusal_of(ApiKind::kCompletion, R"({"prompt":[1,2.5]})"),
            "prompt[1] | prompt[1]: must be a token id, got 2.5");
}

TEST(ParsePrompt, RefusesWhatIsNeither) {
  const auto refusal = [](const std::string& json) {
    return refusal_of(ApiKind::kCompletion, "{\"prompt\":" + json + "}");
  };
  EXPECT_EQ(refusal("null"), "prompt | prompt: is missing");
  EXPECT_EQ(refusal("5"),
            "prompt | prompt: must be a string, a list of strings, or token ids, got 5");
  EXPECT_EQ(refusal("[]"),
            "prompt | prompt: must be a string, a list of strings, or token ids, got a list");
  EXPECT_EQ(refusal("[[]]"), "prompt[0] | prompt[0]: must not be empty");
  EXPECT_EQ(refusal(R"(["a",1])"), "prompt[1] | prompt[1]: must be a string, got 1");
  EXPECT_EQ(refusal(R"([1,"a"])"), "prompt[1] | prompt[1]: must be a token id, got \"a\"");
  EXPECT_EQ(refusal("[[1],2]"), "prompt[1] | prompt[1]: must be a list of token ids, got 2");
  EXPECT_EQ(refusal("[[1,-2]]"), "prompt[0][1] | prompt[0][1]: must be a token id, got -2");
  EXPECT_EQ(refusal("[2147483648]"), "prompt[0] | prompt[0]: must be a token id, got 2147483648");
  EXPECT_EQ(refusal("[true]"), "prompt[0] | prompt[0]: must be a token id, got true");
}

TEST(ParseMessages, TakesTextsAndTextParts) {
  const ApiRequest request = parsed(ApiKind::kChat, R"({"messages":[
      {"role":"system","content":"s"},{"role":"developer","content":"d"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
      {"role":"assistant","content":null,"tool_calls":[]},{"role":"assistant"},{"role":"tool","content":"t","tool_call_id":"1"}]})");
  ASSERT_EQ(request.messages.size(), 6U);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[2].content, "a\nb");
  EXPECT_EQ(request.messages[3].content, "");
  EXPECT_EQ(request.messages[5].content, "t");
}

TEST(ParseMessages, ErrorsNameTheMessageAndThePart) {
  const auto refusal = [](const std::string& json) {
    return refusal_of(ApiKind::kChat, "{\"messages\":" + json + "}");
  };
  EXPECT_EQ(refusal("null"), "messages | messages: must be a list of at least one message");
  EXPECT_EQ(refusal("[]"), "messages | messages: must be a list of at least one message");
  EXPECT_EQ(refusal("{}"), "messages | messages: must be a list, got an object");
  EXPECT_EQ(refusal("[1]"), "messages[0] | messages[0]: must be an object, got 1");
  EXPECT_EQ(refusal(R"([{"role":"bot","content":"x"}])"),
            "messages[0].role | messages[0].role: must be one of system, developer, user, "
            "assistant, tool, function, got \"bot\"");
  EXPECT_EQ(refusal(R"([{"role":"user"}])"),
            "messages[0].content | messages[0].content: must be a string or a list of text parts");
  EXPECT_EQ(
      refusal(R"([{"role":"user","content":1}])"),
      "messages[0].content | messages[0].content: must be a string or a list of text parts, got 1");
  EXPECT_EQ(
      refusal(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])"),
      "messages[0].content[1] | messages[0].content[1]: must be of type \"text\", got "
      "\"image_url\"");
  EXPECT_EQ(refusal(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text | messages[0].content[0].text: is missing");
  EXPECT_EQ(refusal(R"([{"role":"assistant","tool_calls":[{}]}])"),
            "messages[0].tool_calls[0].function | messages[0].tool_calls[0].function: is missing");
}

TEST(ParseUnsupported, IsRefusedWhereItWouldChangeTheResult) {
  for (const char* field :
       {R"("suffix":"x")", R"("prompt_logprobs":0)", R"("use_beam_search":true)",
        R"("format":"json")", R"("choices":["a"])", R"("guided_whitespace_pattern":" ")",
        R"("stop_regex":"a")", R"("structural_tag":"a")", R"("chat_template":"x")",
        R"("functions":[{}])", R"("modalities":["text","audio"])", R"("audio":{"voice":"x"})",
        R"("chat_template_kwargs":{"messages":[]})", R"("truncate_prompt_tokens":5)",
        R"("echo":true)"}) {
    EXPECT_NE(chat_refusal(field), "accepted") << field;
  }
}

constexpr std::string_view kTool =
    R"({"type":"function","function":{"name":"look_up-2","description":"Looks.","parameters":)"
    R"({"type":"object", "properties":{"a":{"type":"string"}}},"strict":true}})";

std::string tools(std::string_view list, std::string_view more = "") {
  return R"("tools":[)" + std::string(list) + "]" + std::string(more);
}
std::string tool(std::string_view function) {
  return R"({"type":"function","function":)" + std::string(function) + "}";
}

TEST(ParseTools, AreReadWithTheirSchemas) {
  const ApiRequest request = chat(tools(std::string(kTool) + "," + tool(R"({"name":"now"})") + "," +
                                        tool(R"({"name":"c","parameters":{}})")));
  ASSERT_EQ(request.tools.size(), 3U);
  EXPECT_EQ(request.tools[0].name, "look_up-2");
  EXPECT_EQ(request.tools[0].description, "Looks.");
  EXPECT_EQ(request.tools[0].parameters,
            R"({"type":"object","properties":{"a":{"type":"string"}}})");
  for (const size_t without : {1, 2}) {
    EXPECT_EQ(request.tools[without].parameters, R"({"type":"object","properties":{}})");
  }
  EXPECT_FALSE(request.must_call_tool);
  EXPECT_TRUE(request.parallel_tool_calls);
}

TEST(ParseTools, ChoiceSaysWhetherOneMustBeCalledAndWhich) {
  EXPECT_TRUE(chat(tools(kTool, R"(,"tool_choice":"none")")).tools.empty());
  EXPECT_FALSE(chat(tools(kTool, R"(,"tool_choice":"auto")")).must_call_tool);
  EXPECT_TRUE(chat(tools(kTool, R"(,"tool_choice":"required")")).must_call_tool);
  const ApiRequest named =
      chat(tools(std::string(kTool) + "," + tool(R"({"name":"b"})"),
                 R"(,"parallel_tool_calls":false,"tool_choice":)" + tool(R"({"name":"b"})")));
  EXPECT_TRUE(named.must_call_tool);
  EXPECT_EQ(named.callable_tools, std::vector<size_t>{1});
  EXPECT_FALSE(named.parallel_tool_calls);
}

TEST(ParseTools, RefusalsNameTheField) {
  const auto of = [](const std::string& fields) {
    const std::string refusal = chat_refusal(fields);
    return refusal.substr(0, refusal.find(" | "));
  };
  EXPECT_EQ(of(R"("tools":{})"), "tools");
  EXPECT_EQ(of(tools("7")), "tools[0]");
  EXPECT_EQ(of(tools("{}")), "tools[0].function");
  EXPECT_EQ(of(tools(R"({"type":"custom","custom":{"name":"a"}})")), "tools[0].type");
  for (const char* name :
       {"", "a b", R"(a\u0000)", R"(a\n)", R"(\u001b[31m)", R"(\")", "naïve", "a.b"}) {
    EXPECT_EQ(of(tools(tool(R"({"name":")" + std::string(name) + "\"}"))), "tools[0].function.name")
        << name;
  }
  EXPECT_EQ(of(tools(tool(R"({"name":")" + std::string(65, 'n') + "\"}"))),
            "tools[0].function.name");
  EXPECT_EQ(of(tools(std::string(kTool) + "," + std::string(kTool))), "tools[1].function.name");
  for (const char* parameters : {"7", "[1]", "true", R"({"type":"string"})"}) {
    EXPECT_EQ(of(tools(tool(R"({"name":"a","parameters":)" + std::string(parameters) + "}"))),
              "tools[0].function.parameters")
        << parameters;
  }
  EXPECT_EQ(of(tools(tool(R"({"name":"a","strict":"yes"})"))), "tools[0].function.strict");
  EXPECT_EQ(of(tools(kTool, R"(,"tool_choice":"any")")), "tool_choice");
  EXPECT_EQ(of(tools(kTool, R"(,"tool_choice":7)")), "tool_choice");
  EXPECT_EQ(of(tools(kTool, R"(,"tool_choice":{"type":"allowed_tools"})")),
            "tool_choice.allowed_tools");
  EXPECT_EQ(of(tools(kTool, R"(,"tool_choice":)" + tool(R"({"name":"other"})"))),
            "tool_choice.function.name");
  EXPECT_EQ(of(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(of(tools(kTool, R"(,"parallel_tool_calls":1)")), "parallel_tool_calls");
  EXPECT_EQ(of(tools(kTool, R"(,"response_format":{"type":"json_object"})")), "accepted");
  EXPECT_EQ(of(tools(kTool, R"(,"regex":"a")")), "tools");
  EXPECT_EQ(of(tools(tool(R"({"name":"a","parameters":{"$ref":"#/$defs/a"}})"))), "accepted");
  EXPECT_NE(completion_refusal(tools(kTool)), "accepted");
}

TEST(ParseTools, AreBoundedInNumberAndSize) {
  std::string many;
  for (size_t i = 0; i <= limits::kToolsMax; ++i) {
    many += (i > 0 ? "," : "") + tool(R"({"name":"t)" + std::to_string(i) + "\"}");
  }
  EXPECT_EQ(chat_refusal(tools(many)), "tools | tools: must have at most 128 elements, got 129");
  std::string large;
  for (size_t i = 0; i < 3; ++i) {
    large += (i > 0 ? "," : "") + tool(R"({"name":"t)" + std::to_string(i) +
                                       R"(","parameters":{"type":"object","description":")" +
                                       std::string(limits::kToolsBytesMax / 3, 'd') + "\"}}");
  }
  EXPECT_TRUE(
      chat_refusal(tools(large))
          .starts_with(
              "tools | tools: must have descriptions and parameters of at most 4194304 bytes "
              "together, got "));
}

TEST(ParseTools, CallsAndResultsAreReadFromTheHistory) {
  const ApiRequest request = parsed(
      ApiKind::kChat,
      R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},)"
      R"({"role":"tool","tool_call_id":"call_1","content":"42"}]})");
  ASSERT_EQ(request.messages.size(), 3U);
  ASSERT_EQ(request.messages[1].tool_calls.size(), 1U);
  EXPECT_EQ(request.messages[1].content, "");
  EXPECT_EQ(request.messages[1].tool_calls[0].id, "call_1");
  EXPECT_EQ(request.messages[1].tool_calls[0].name, "f");
  EXPECT_EQ(request.messages[1].tool_calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(request.messages[2].tool_call_id, "call_1");
  const auto of = [](const std::string& message) {
    const std::string refusal = refusal_of(ApiKind::kChat, R"({"messages":[)" + message + "]}");
    return refusal.substr(0, refusal.find(" | "));
  };
  EXPECT_EQ(of(R"({"role":"user","content":"a","tool_calls":[{}]})"), "messages[0].tool_calls");
  EXPECT_EQ(of(R"({"role":"assistant","tool_calls":[{}]})"), "messages[0].tool_calls[0].function");
  EXPECT_EQ(of(R"({"role":"assistant","tool_calls":[{"function":{"name":"a\n"}}]})"),
            "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(of(R"({"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":7}}]})"),
            "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(of(R"({"role":"tool","content":"a","tool_call_id":")" +
               std::string(limits::kToolCallIdBytesMax + 1, 'i') + "\"}"),
            "messages[0].tool_call_id");
}

TEST(ParseUnsupported, SpecialTokensAreAddedAsEachKindDoes) {
  completion(R"("add_special_tokens":true)");
  chat(R"("add_special_tokens":false)");
  EXPECT_EQ(chat_refusal(R"("add_special_tokens":true)"),
            "add_special_tokens | add_special_tokens: true is not supported here");
  EXPECT_NE(completion_refusal(R"("add_special_tokens":false)"), "accepted");
}

TEST(ParseUnsupported, IsIgnoredWhereItAsksForNothing) {
  chat(
      R"("suffix":"","use_beam_search":false,"tools":[],"tool_choice":"none","functions":null,"modalities":["text"],"chat_template_kwargs":{})");
  chat(R"("tools":[{"type":"function"}],"tool_choice":"none")");
  chat(R"("tool_choice":"auto")");
}

TEST(ParseKvTransfer, ReadsBothHalvesAndIgnoresVllmsOwnFields) {
  const ApiRequest prefill = completion(
      R"("kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,
          "remote_host":null,"remote_port":null})");
  ASSERT_TRUE(prefill.kv_transfer);
  EXPECT_TRUE(prefill.kv_transfer->do_remote_decode);
  EXPECT_FALSE(prefill.kv_transfer->transfer);
  const ApiRequest decode = completion(
      R"("kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"000102030405060708090a0b0c0d0e0f","remote_engine_id":"e",
          "remote_host":"h","remote_port":5600,"remote_unix_path":"/p","remote_host_id":"i","remote_block_ids":[[1,2]],"tp_size":8})");
  ASSERT_TRUE(decode.kv_transfer && decode.kv_transfer->transfer);
  EXPECT_EQ(decode.kv_transfer->transfer->to_string(), "000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ(decode.kv_transfer->remote_engine_id, "e");
  EXPECT_EQ(decode.kv_transfer->remote_host, "h");
  EXPECT_EQ(decode.kv_transfer->remote_port, 5600);
  EXPECT_EQ(decode.kv_transfer->remote_unix_path, "/p");
  EXPECT_EQ(decode.kv_transfer->remote_host_id, "i");
}

TEST(ParseKvTransfer, RefusesNonsense) {
  EXPECT_EQ(completion_refusal(R"("kv_transfer_params":{"transfer_id":"12"})"),
            "kv_transfer_params.transfer_id | kv_transfer_params.transfer_id: must be 32 "
            "hexadecimal digits");
  EXPECT_EQ(completion_refusal(R"("kv_transfer_params":{"remote_port":65536})"),
            "kv_transfer_params.remote_port | kv_transfer_params.remote_port: must be an integer "
            "from 0 to 65535, got 65536");
  EXPECT_NE(completion_refusal(
                R"("kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":true})"),
            "accepted");
  EXPECT_NE(completion_refusal(R"("kv_transfer_params":[])"), "accepted");
}

TEST(ParseHostile, NeverCrashesAndSaysWhere) {
  const auto refusal = [](const std::string& body) {
    return refusal_of(ApiKind::kCompletion, body);
  };
  EXPECT_EQ(refusal(""), " | the body is empty, must be a JSON object");
  EXPECT_EQ(refusal("[]"), " | the body must be a JSON object, got a list");
  EXPECT_EQ(refusal("{\n\"prompt\": nope}"),
            " | the body is not valid JSON: parse error at line 2, column 12: syntax error while "
            "parsing value - invalid literal; "
            "last read: '\"prompt\": no'");
  for (const std::string& body :
       {std::string("{"), std::string("{\"prompt\":\"a"), std::string("{} {}"),
        std::string("\xff\xfe"), std::string("{\"prompt\":\"\xc3\"}"),
        std::string("{\"prompt\":NaN}"), std::string("   "),
        std::string("{\"temperature\":1e999,\"prompt\":\"\"}"), std::string("\0", 1),
        std::string("{\"prompt\":\"\",\"seed\":123456789012345678901234567890}"),
        std::string(100000, '['),
        "{\"prompt\":" + std::string(100, '[') + std::string(100, ']') + "}",
        std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":\"\\udc00\"}"),
        std::string("{\"prompt\":\"\\ud800\\u0041\"}")}) {
    EXPECT_NE(refusal(body), "accepted") << body.substr(0, 50);
  }
}

TEST(ParseHostile, TellsDepthFromSyntax) {
  EXPECT_EQ(completion_refusal("\"x\":" + std::string(100, '[') + std::string(100, ']')),
            " | the body is nested deeper than 64 levels");
}

TEST(ParseHostile, ABodyOfVeryManyValuesIsRefusedBeforeItIsRead) {
  std::string tokens = R"({"prompt":[1)";
  for (size_t i = 0; i < limits::kJsonValuesMax; ++i) {
    tokens += ",1";
  }
  EXPECT_EQ(refusal_of(ApiKind::kCompletion, tokens + "]}"),
            " | the body has more than 4194304 values");
  // Commas inside a text do not count as values.
  const std::string commas(limits::kJsonValuesMax + 10, ',');
  const std::string text = R"({"prompt":"\\\"x)" + commas + R"(","max_tokens":1})";
  EXPECT_EQ(parsed(ApiKind::kCompletion, text).prompts[0].size(), commas.size() + 3);
}

TEST(ParseHostile, EscapedTextComesOutAsText) {
  EXPECT_EQ(parsed(ApiKind::kCompletion, R"({"pro\u006dpt":"\u0000\ud83d\ude00"})").prompts[0],
            std::string("\0\U0001F600", 5));
}

TEST(ToApiError, IsOneTable) {
  const auto of = [](ErrorCode code) {
    const ApiError error = to_api_error({code, "m"});
    return std::to_string(error.status) + " " + error.type + " " + error.code;
  };
  EXPECT_EQ(of(ErrorCode::kInvalidArgument), "400 invalid_request_error ");
  EXPECT_EQ(of(ErrorCode::kNotFound), "404 invalid_request_error not_found");
  EXPECT_EQ(of(ErrorCode::kOverloaded), "503 overloaded_error overloaded");
  EXPECT_EQ(of(ErrorCode::kUnavailable), "503 server_error unavailable");
  EXPECT_EQ(of(ErrorCode::kTimeout), "504 server_error timeout");
  EXPECT_EQ(of(ErrorCode::kCancelled), "499 cancelled_error cancelled");
  EXPECT_EQ(of(ErrorCode::kCorrupt), "500 server_error corrupt");
  EXPECT_EQ(of(ErrorCode::kUnsupported), "400 invalid_request_error unsupported");
  EXPECT_EQ(of(ErrorCode::kInternal), "500 server_error internal");
}

TEST(ErrorBody, HasOpenAisShape) {
  EXPECT_EQ(
      error_body({.status = 400, .type = "t", .message = "a \"b\"", .param = "p", .code = ""}),
      R"({"error":{"message":"a \"b\"","type":"t","param":"p","code":null}})");
}

TEST(JsonNumber, RouterAndWorkerReadTheSameInteger) {
  const auto served = [](const std::string& number) -> std::optional<int64_t> {
    const auto parsed = parse_api_request(
        ApiKind::kCompletion, R"({"model":"m","prompt":"x","max_tokens":)" + number + "}");
    if (!parsed) {
      return std::nullopt;
    }
    return parsed->fills_context ? -1 : parsed->stop.max_tokens;
  };
  constexpr std::string_view kLetters = "0123456789.eE+-";
  uint64_t random = 1;
  size_t accepted = 0;
  std::vector<std::string> numbers = {"900.0",
                                      "9e2",
                                      "0.9e3",
                                      "90e1",
                                      "9000e-1",
                                      "1e309",
                                      "-0.0",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "0x10",
                                      "inf",
                                      "nan",
                                      "2147483647",
                                      "2147483648",
                                      "9007199254740993.0",
                                      "1E0"};
  for (int i = 0; i < 20'000; ++i) {
    std::string number;
    for (random = random * 6364136223846793005 + 1442695040888963407;
         number.size() < 1 + (random >> 60) % 7;
         random = random * 6364136223846793005 + 1442695040888963407) {
      number.push_back(kLetters[(random >> 33) % kLetters.size()]);
    }
    numbers.push_back(std::move(number));
  }
  for (const std::string& number : numbers) {
    auto counted = json_integer(number);
    if (counted && (*counted < -1 || *counted == 0 || *counted > INT32_MAX)) {
      counted.reset();  // Outside of a worker's range.
    }
    EXPECT_EQ(counted, served(number)) << number;
    accepted += counted ? 1 : 0;
  }
  EXPECT_GT(accepted, 500U);
}

}  // namespace
}  // namespace pdjob::openai
