#include "openai/kserve/infer_request.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "openai/kserve/infer_reply.h"
#include "openai/kserve/infer_tensor.h"

namespace pdjob::openai {
namespace {

std::string completion_of(const std::string& json, const std::string& binary = "") {
  const auto request = parse_infer("m", json + binary, json.size());
  return request ? request->completion : "error: " + request.error().message;
}

std::string input(const std::string& name, const std::string& datatype, const std::string& shape,
                  const std::string& data) {
  return R"({"name":")" + name + R"(","datatype":")" + datatype + R"(","shape":)" + shape +
         R"(,"data":)" + data + "}";
}

std::string inputs(const std::string& list) { return R"({"inputs":[)" + list + "]}"; }

const std::string kText = input("text_input", "BYTES", "[1]", R"(["Once"])");

TEST(InferRequest, IsACompletionOfItsText) {
  EXPECT_EQ(completion_of(inputs(kText)), R"({"model":"m","prompt":"Once"})");
  EXPECT_EQ(completion_of(inputs(input("text_input", "BYTES", "[1,1]", R"([["\"é"]])"))),
            R"({"model":"m","prompt":"\"é"})");
  EXPECT_EQ(completion_of(inputs(input("text_input", "BYTES", "[2]", R"(["a","b"])"))),
            R"({"model":"m","prompt":["a","b"]})");
}

TEST(InferRequest, OfTokensAsksForTokens) {
  for (const char* const datatype : {"INT32", "INT64", "UINT32"}) {
    EXPECT_EQ(completion_of(inputs(input("input_ids", datatype, "[1,3]", "[[1,2,3]]"))),
              R"({"model":"m","prompt":[1,2,3],"return_token_ids":true})");
  }
}

TEST(InferRequest, HasParametersInThreePlaces) {
  EXPECT_EQ(completion_of(R"({"parameters":{"max_tokens":8,"temperature":0.5},"inputs":[)" + kText +
                          "]}"),
            R"({"model":"m","prompt":"Once","max_tokens":8,"temperature":0.5})");
  EXPECT_EQ(completion_of(inputs(kText + "," + input("max_tokens", "INT32", "[1,1]", "[[8]]") +
                                 "," + input("random_seed", "UINT64", "[1]", "[7]") + "," +
                                 input("stop_words", "BYTES", "[2]", R"(["a","b"])"))),
            R"({"model":"m","prompt":"Once","max_tokens":8,"seed":7,"stop":["a","b"]})");
  EXPECT_EQ(
      completion_of(inputs(kText + "," +
                           input("sampling_parameters", "BYTES", "[1]", R"(["{\"top_p\": 0.9}"])") +
                           "," + input("exclude_input_in_output", "BOOL", "[1]", "[false]") + "," +
                           input("stream", "BOOL", "[1]", "[false]"))),
      R"({"model":"m","prompt":"Once","echo":true,"top_p":0.9})");
}

TEST(InferRequest, MayHaveItsTensorsBehindTheJson) {
  std::string binary;
  append_binary_text(binary, "Once");
  const size_t text = binary.size();
  append_binary_int32(binary, 8);
  const auto said = [](const std::string& name, const std::string& datatype, size_t bytes) {
    return R"({"name":")" + name + R"(","datatype":")" + datatype +
           R"(","shape":[1],"parameters":{"binary_data_size":)" + std::to_string(bytes) + "}}";
  };
  const std::string json =
      inputs(said("text_input", "BYTES", text) + "," + said("max_tokens", "INT32", 4));
  EXPECT_EQ(completion_of(json, binary), R"({"model":"m","prompt":"Once","max_tokens":8})");
  EXPECT_NE(completion_of(json, binary + "x").find("1 bytes behind the JSON"), std::string::npos);
  for (size_t length = 0; length < binary.size(); ++length) {
    EXPECT_TRUE(completion_of(json, binary.substr(0, length)).starts_with("error")) << length;
  }
}

TEST(InferRequest, OfWhatItCannotDoIsRefusedByName) {
  const auto refused = [](const std::string& json, const std::string& why) {
    const std::string said = completion_of(json);
    EXPECT_TRUE(said.starts_with("error: ") && said.find(why) != std::string::npos) << said;
  };
  refused("{}", "text_input (BYTES) or input_ids");
  refused(inputs(input("text_input", "FP16", "[1]", "[1]")), "datatype");
  refused(inputs(input("text_input", "INT32", "[1]", "[1]")), "must be BYTES");
  refused(inputs(input("text_input", "BYTES", "[2]", R"(["a"])")), "the shape has 2");
  refused(inputs(input("text_input", "BYTES", "[1099511627776,1099511627776]", "[]")), "elements");
  refused(inputs(input("text_input", "BYTES", "[-1]", R"(["a"])")), "shape");
  refused(inputs(input("input_ids", "INT32", "[2,2]", "[1,2,3,4]")), "tokens of one prompt");
  refused(inputs(input("input_ids", "INT32", "[2]", "[1,1.5]")), "datatype");
  refused(inputs(kText + "," + kText), "second prompt");
  refused(inputs(kText + "," + input("image", "FP32", "[2]", "[1,2]")), "\"image\" is no input");
  refused(inputs(kText + "," + input("stream", "BOOL", "[1]", "[true]")), "stream");
  refused(R"({"parameters":{"stream":true},"inputs":[)" + kText + "]}", "parameters.stream");
  refused(R"({"parameters":{"timeout":5},"inputs":[)" + kText + "]}", "timeout");
  refused(R"({"outputs":[{"name":"logits"}],"inputs":[)" + kText + "]}", "text_output");
  refused(inputs(kText + "," + input("sampling_parameters", "BYTES", "[1]", R"(["{"])")),
          "sampling_parameters");
  refused(R"({"outputs":[{"name":"output_ids"}],"inputs":[)" +
              input("text_input", "BYTES", "[2]", R"(["a","b"])") + "]}",
          "one prompt");
}

constexpr std::string_view kCompletion =
    R"({"choices":[{"index":1,"text":"b","token_ids":[3]},{"index":0,"text":"a\"","token_ids":[1,2]}]})";

TEST(InferReply, HasTheTextsByTheirPrompts) {
  const InferRequest request{.model = "m", .id = "7", .outputs = {{}}};
  EXPECT_EQ(
      infer_reply(request, kCompletion)->body,
      R"({"model_name":"m","model_version":"1","id":"7","outputs":[{"name":"text_output","datatype":"BYTES","shape":[2],"data":["a\"","b"]}]})");
}

TEST(InferReply, MayHaveItsTensorsBehindTheJson) {
  const InferRequest request{.model = "m",
                             .outputs = {{.binary = true}, {.tokens = true, .binary = true}}};
  const auto reply =
      infer_reply(request, R"({"choices":[{"index":0,"text":"ab","token_ids":[1,2]}]})");
  ASSERT_TRUE(reply);
  EXPECT_EQ(
      reply->body.substr(0, reply->json_bytes),
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"text_output","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}},{"name":"output_ids","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}}]})");
  EXPECT_EQ(reply->body.substr(reply->json_bytes), std::string("\2\0\0\0ab\1\0\0\0\2\0\0\0", 14));
}

TEST(InferReply, WithoutWhatWasAskedIsAnError) {
  const InferRequest tokens{.model = "m", .outputs = {{.tokens = true}}};
  EXPECT_EQ(infer_reply(tokens, R"({"choices":[{"index":0,"text":"a"}]})").error().status, 502);
  EXPECT_EQ(infer_reply(tokens, kCompletion).error().status, 400);
  EXPECT_EQ(infer_reply(tokens, "{}").error().status, 502);
  EXPECT_EQ(infer_reply(tokens, "x").error().status, 502);
}

TEST(InferReply, OfAnErrorHasItsMessage) {
  EXPECT_EQ(infer_error(R"({"error":{"message":"no"}})"), R"({"error":"no"})");
  EXPECT_EQ(infer_error("plain"), R"({"error":"plain"})");
}

}  // namespace
}  // namespace pdjob::openai
