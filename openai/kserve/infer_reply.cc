#include "openai/kserve/infer_reply.h"

#include <algorithm>
#include <array>
#include <vector>

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "openai/kserve/infer_tensor.h"
#include "openai/kserve/kserve_path.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

struct Choice {
  std::string_view text;
  std::vector<int32_t> tokens;
};

ApiError lacks(const std::string& what) {
  return {.status = 502, .type = "server_error", .message = "The engine's answer has no " + what};
}

bool read_tokens(const dom::element& choice, Choice& read) {
  dom::array tokens;
  if (choice["token_ids"].get(tokens) != simdjson::SUCCESS) {
    return false;
  }
  for (const dom::element token : tokens) {
    int64_t number = 0;
    if (token.get(number) != simdjson::SUCCESS || number < 0 || number > INT32_MAX) {
      return false;
    }
    read.tokens.push_back(static_cast<int32_t>(number));
  }
  return true;
}

// By their index.
Result<std::vector<Choice>, ApiError> read_choices(const dom::element& reply, bool tokens) {
  dom::array list;
  if (reply["choices"].get(list) != simdjson::SUCCESS || list.size() == 0) {
    return lacks("choices");
  }
  std::vector<Choice> choices(list.size());
  for (const dom::element one : list) {
    uint64_t index = 0;
    Choice read;
    if (one["index"].get(index) != simdjson::SUCCESS || index >= choices.size() ||
        one["text"].get(read.text) != simdjson::SUCCESS) {
      return lacks("text");
    }
    if (tokens && !read_tokens(one, read)) {
      return lacks("token ids");
    }
    choices[index] = std::move(read);
  }
  return choices;
}

void append_tensor(JsonWriter& json, std::string& binary, const InferOutput& output,
                   const std::vector<Choice>& choices) {
  json.begin_object().key("name").string(output.tokens ? kTokenOutput : kTextOutput);
  json.key("datatype").string(output.tokens ? "INT32" : "BYTES");
  json.key("shape").begin_array();
  if (output.tokens) {
    json.integer(1).integer(choices.front().tokens.size());
  } else {
    json.integer(choices.size());
  }
  json.end_array();
  if (output.binary) {
    const size_t before = binary.size();
    if (output.tokens) {
      std::ranges::for_each(choices.front().tokens,
                            [&](int32_t token) { append_binary_int32(binary, token); });
    } else {
      std::ranges::for_each(choices,
                            [&](const Choice& choice) { append_binary_text(binary, choice.text); });
    }
    json.key("parameters").begin_object();
    json.key("binary_data_size").integer(binary.size() - before).end_object();
  } else {
    json.key("data").begin_array();
    if (output.tokens) {
      std::ranges::for_each(choices.front().tokens, [&](int32_t token) { json.integer(token); });
    } else {
      std::ranges::for_each(choices, [&](const Choice& choice) { json.string(choice.text); });
    }
    json.end_array();
  }
  json.end_object();
}

void append_spec(JsonWriter& json, std::string_view name, std::string_view datatype,
                 std::initializer_list<int> shape) {
  json.begin_object().key("name").string(name).key("datatype").string(datatype);
  json.key("shape").begin_array();
  for (const int size : shape) {
    json.integer(size);
  }
  json.end_array().end_object();
}

}  // namespace

Result<InferReply, ApiError> infer_reply(const InferRequest& request, std::string_view completion) {
  dom::parser parser;
  dom::element reply;
  if (parser.parse(completion.data(), completion.size()).get(reply) != simdjson::SUCCESS) {
    return lacks("JSON");
  }
  const bool tokens = std::ranges::any_of(request.outputs, &InferOutput::tokens);
  PDJOB_TRY(const std::vector<Choice> choices, read_choices(reply, tokens));
  if (tokens && choices.size() > 1) {
    return invalid_request(
        std::string(kTokenOutput) + " is for one answer: answers differ in length", "n");
  }
  InferReply made;
  std::string binary;
  JsonWriter json(made.body);
  json.begin_object().key("model_name").string(request.model);
  json.key("model_version").string(kKserveVersion);
  if (!request.id.empty()) {
    json.key("id").string(request.id);
  }
  json.key("outputs").begin_array();
  for (const InferOutput& output : request.outputs) {
    append_tensor(json, binary, output, choices);
  }
  json.end_array().end_object();
  made.json_bytes = made.body.size();
  made.body += binary;
  return made;
}

std::string infer_error(std::string_view error_body) {
  dom::parser parser;
  dom::element error;
  std::string_view message;
  const bool read =
      parser.parse(error_body.data(), error_body.size()).get(error) == simdjson::SUCCESS &&
      (error["error"]["message"].get(message) == simdjson::SUCCESS ||
       error["message"].get(message) == simdjson::SUCCESS);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("error").string(read ? message : error_body).end_object();
  return body;
}

std::string kserve_server_body() {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("name").string("pdjob").key("version").string(PDJOB_VERSION);
  json.key("extensions").begin_array().string("binary_tensor_data").end_array().end_object();
  return body;
}

std::string kserve_model_body(std::string_view model) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("name").string(model);
  json.key("versions").begin_array().string(kKserveVersion).end_array();
  json.key("platform").string("pdjob");
  json.key("inputs").begin_array();
  append_spec(json, kTextInput, "BYTES", {-1});
  append_spec(json, kTokenInput, "INT32", {1, -1});
  json.end_array().key("outputs").begin_array();
  append_spec(json, kTextOutput, "BYTES", {-1});
  append_spec(json, kTokenOutput, "INT32", {1, -1});
  json.end_array().end_object();
  return body;
}

}  // namespace pdjob::openai
