#include "openai/kserve/infer_request.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "openai/kserve/infer_tensor.h"
#include "openai/openai_fields.h"
#include "openai/openai_prompt.h"

namespace pdjob::openai {
namespace {

constexpr size_t kTensorsMax = 64;

// Fields that this protocol sets itself.
constexpr std::array<std::string_view, 8> kOwn = {"model",
                                                  "prompt",
                                                  "suffix",
                                                  "stream",
                                                  "stream_options",
                                                  "return_token_ids",
                                                  "kv_transfer_params",
                                                  "messages"};

// Names of Triton's backends for parameters that OpenAI and vLLM call otherwise.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherNames = {
    {{"stop_words", "stop"},
     {"random_seed", "seed"},
     {"request_output_len", "max_tokens"},
     {"return_log_probs", "logprobs"}}};

std::string_view usual_name(std::string_view name) {
  const auto* const other =
      std::ranges::find(kOtherNames, name, &std::pair<std::string_view, std::string_view>::first);
  return other == kOtherNames.end() ? name : other->second;
}

class Reader {
 public:
  Reader(std::string_view model, std::string_view binary) : binary_(binary) {
    request_.model = model;
  }

  void read(const Fields& fields) {
    fields.text("id", request_.id);
    if (const auto parameters = fields.object("parameters")) {
      parameters->boolean("binary_data_output", binary_output_);
      parameters->unsupported("timeout", "is not supported: use the HTTP client's");
      for (const auto& [name, value] : parameters->members()) {
        if (name != "binary_data_output" && name != "timeout") {
          take(*parameters, name, name, simdjson::minify(value));
        }
      }
    }
    read_objects(fields, "inputs", kTensorsMax, [this](const Fields& one) { read_input(one); });
    if (prompt_.empty()) {
      fields.wrong("inputs", "must have " + std::string(kTextInput) + " (BYTES) or " +
                                 std::string(kTokenInput) + " (INT32 or INT64)");
    }
    if (!binary_.empty()) {
      fields.wrong("inputs", "leave " + std::to_string(binary_.size()) +
                                 " bytes behind the JSON that no tensor has");
    }
    read_objects(fields, "outputs", kTensorsMax, [this](const Fields& one) { read_output(one); });
    if (request_.outputs.empty()) {
      request_.outputs.push_back({.tokens = false, .binary = binary_output_});
      if (of_tokens_) {
        request_.outputs.push_back({.tokens = true, .binary = binary_output_});
      }
    }
    if (prompts_ > 1 && std::ranges::any_of(request_.outputs, &InferOutput::tokens)) {
      fields.wrong("outputs", "has " + std::string(kTokenOutput) +
                                  ", which is for one prompt: answers differ in length");
    }
  }

  InferRequest made() && {
    JsonWriter json(request_.completion);
    json.begin_object().key("model").string(request_.model).key("prompt").raw(prompt_);
    for (const auto& [name, value] : members_) {
      json.key(name).raw(value);
    }
    if (std::ranges::any_of(request_.outputs, &InferOutput::tokens)) {
      json.key("return_token_ids").boolean(true);
    }
    json.end_object();
    return std::move(request_);
  }

 private:
  void read_input(const Fields& fields) {
    const InferTensor tensor = read_tensor(fields, binary_);
    if (!fields.reading().outcome) {
      return;
    }
    if (tensor.name == kTextInput || tensor.name == kTokenInput) {
      read_prompt(fields, tensor);
    } else if (tensor.name == "sampling_parameters") {
      read_parameters(fields, tensor);
    } else if (tensor.name == "stream") {
      if (tensor.values != std::vector<std::string>{"false"}) {
        fields.wrong("data", "of `stream` must be false: an answer to infer comes whole");
      }
    } else if (tensor.name == "exclude_input_in_output") {
      if (tensor.kind != TensorKind::kBoolean || tensor.values.size() != 1) {
        return fields.wrong("data", "must be one truth value");
      }
      members_["echo"] = tensor.values[0] == "true" ? "false" : "true";
    } else {
      read_parameter(fields, tensor);
    }
  }

  void read_prompt(const Fields& fields, const InferTensor& tensor) {
    const bool tokens = tensor.name == kTokenInput;
    if (tensor.kind != (tokens ? TensorKind::kInteger : TensorKind::kText)) {
      return fields.wrong("datatype", tokens ? "must be an integer's" : "must be BYTES");
    }
    if (!prompt_.empty()) {
      return fields.wrong("name", "is a second prompt: give one of " + std::string(kTextInput) +
                                      " and " + std::string(kTokenInput));
    }
    if (tensor.values.empty()) {
      return fields.wrong("shape", "has no elements");
    }
    if (tokens && tensor.shape.back() != tensor.values.size()) {
      return fields.wrong("shape", "must be [n] or [1, n]: the tokens of one prompt");
    }
    of_tokens_ = tokens;
    prompts_ = tokens ? 1 : tensor.values.size();
    JsonWriter json(prompt_);
    if (!tokens && prompts_ == 1) {
      json.string(tensor.values[0]);
      return;
    }
    json.begin_array();
    for (const std::string& value : tensor.values) {
      tokens ? json.raw(value) : json.string(value);
    }
    json.end_array();
  }

  // As Triton's vLLM backend has them: one text, with a JSON object.
  void read_parameters(const Fields& fields, const InferTensor& tensor) {
    if (tensor.kind != TensorKind::kText || tensor.values.size() != 1) {
      return fields.wrong("data", "must be one text with a JSON object");
    }
    const auto read = read_object(tensor.values[0], [&](const Fields& inner) {
      for (const auto& [name, value] : inner.members()) {
        take(inner, name, name, simdjson::minify(value));
      }
    });
    if (!read) {
      fields.wrong("data", "of sampling_parameters: " + read.error().message);
    }
  }

  // As TensorRT-LLM's models have them: a tensor each.
  void read_parameter(const Fields& fields, const InferTensor& tensor) {
    const std::string_view name = usual_name(tensor.name);
    const bool is_list = name == "stop";
    if (!is_list && tensor.values.size() != 1) {
      return fields.wrong("name", excerpt(tensor.name) +
                                      " is no input of this model, and no parameter of one value");
    }
    std::string value;
    JsonWriter json(value);
    if (is_list) {
      json.begin_array();
    }
    for (const std::string& one : tensor.values) {
      tensor.kind == TensorKind::kText ? json.string(one) : json.raw(one);
    }
    if (is_list) {
      json.end_array();
    }
    take(fields, "name", name, std::move(value));
  }

  void take(const Fields& fields, std::string_view where, std::string_view name,
            std::string value) {
    if (std::ranges::find(kOwn, name) != kOwn.end()) {
      fields.wrong(where, "cannot be set here");
    } else {
      members_[std::string(name)] = std::move(value);
    }
  }

  void read_output(const Fields& fields) {
    std::string name;
    fields.text("name", name);
    if (name != kTextOutput && name != kTokenOutput) {
      return fields.wrong("name", "must be " + std::string(kTextOutput) + " or " +
                                      std::string(kTokenOutput) + ", got " + excerpt(name));
    }
    InferOutput output{.tokens = name == kTokenOutput, .binary = binary_output_};
    if (const auto parameters = fields.object("parameters")) {
      parameters->boolean("binary_data", output.binary);
      parameters->unsupported("classification");
    }
    request_.outputs.push_back(output);
  }

  InferRequest request_;
  std::string_view binary_;  // Of the body, what no tensor has taken yet.
  std::string prompt_;       // As JSON.
  size_t prompts_ = 0;
  bool of_tokens_ = false;
  bool binary_output_ = false;
  std::map<std::string, std::string> members_;  // Of the completion; values as JSON.
};

}  // namespace

Result<InferRequest, ApiError> parse_infer(std::string_view model, std::string_view body,
                                           size_t json_bytes) {
  if (json_bytes > body.size()) {
    return invalid_request("Inference-Header-Content-Length is larger than the body");
  }
  Reader reader(model, body.substr(json_bytes));
  PDJOB_TRY_STATUS(read_object(body.substr(0, json_bytes),
                               [&reader](const Fields& fields) { reader.read(fields); }));
  return std::move(reader).made();
}

}  // namespace pdjob::openai
