#include "openai/structure_fields.h"

#include <algorithm>
#include <utility>

#include <simdjson.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr const char* kAnyJsonObject = R"({"type":"object"})";

void set_structure(const Fields& fields, std::string_view name, SamplingParams& sampling,
                   std::string SamplingParams::* form, std::string text) {
  if (sampling.structured()) {
    return fields.wrong(name, "must not be given: another field structures the output already");
  }
  const size_t most =
      form == &SamplingParams::json_schema ? limits::kSchemaBytesMax : limits::kGrammarBytesMax;
  if (text.empty() || text.size() > most) {
    return fields.wrong(name, "must have 1 to " + std::to_string(most) + " bytes, got " +
                                  std::to_string(text.size()));
  }
  sampling.*form = std::move(text);
}

void read_text_form(const Fields& fields, std::string_view name, SamplingParams& sampling,
                    std::string SamplingParams::* form) {
  if (fields.find(name)) {
    std::string text;
    fields.text(name, text);
    if (!text.empty()) {  // As in llama.cpp and SGLang, an empty one is none.
      set_structure(fields, name, sampling, form, std::move(text));
    }
  }
}

// A text of GBNF.
void append_literal(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  static constexpr std::pair<char, char> kEscapes[] = {
      {'"', '"'}, {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  out += '"';
  for (const char sign : text) {
    const auto byte = static_cast<unsigned char>(sign);
    const auto* const known = std::find_if(std::begin(kEscapes), std::end(kEscapes),
                                           [sign](const auto& each) { return each.first == sign; });
    if (known != std::end(kEscapes)) {
      out += {'\\', known->second};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xFU]};
    } else {
      out += sign;
    }
  }
  out += '"';
}

// One of several texts.
void read_choices_of_text(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  const auto list = fields.list(name, limits::kSchemaValuesMax);
  if (!list) {
    return;
  }
  std::string grammar = "root ::= ";
  for (const dom::element choice : *list) {
    std::string text;
    read_text(fields.reading(), fields.param(name), choice, text);
    if (!fields.reading().outcome) {
      return;
    }
    grammar += grammar.back() == '"' ? " | " : "";
    append_literal(grammar, text);
  }
  if (list->size() == 0) {
    return fields.wrong(name, "must have at least one text");
  }
  set_structure(fields, name, sampling, &SamplingParams::grammar, std::move(grammar));
}

void read_response_format(const Fields& fields, SamplingParams& sampling) {
  const auto format = fields.object("response_format");
  if (!format) {
    return;
  }
  std::string type;
  format->text("type", type);
  if (type == "json_object" && !format->find("schema")) {
    read_any_object(*format, "type", sampling);
  } else if (type == "json_object") {
    read_schema(*format, "schema", sampling);
  } else if (type == "json_schema" && !format->find("json_schema")) {
    // llama.cpp's form.
    if (!format->find("schema")) {
      return format->wrong("json_schema.schema", "is missing");
    }
    read_schema(*format, "schema", sampling);
  } else if (type == "json_schema") {
    const auto schema = format->object("json_schema");
    if (!schema || !schema->find("schema")) {
      return format->wrong("json_schema.schema", "is missing");
    }
    sampling.schema_exact = false;
    schema->boolean("strict", sampling.schema_exact);
    read_schema(*schema, "schema", sampling);
  } else if (type != "text") {
    format->wrong("type", "must be one of text, json_object, json_schema, got " + excerpt(type));
  }
}

// A name that pdjob does not know may ask for structure in a way that it would not follow.
void refuse_unknown(const Fields& fields, const Fields& outputs) {
  static constexpr std::string_view kKnown[] = {
      "json", "json_object", "grammar", "regex", "choice", "structural_tag", "whitespace_pattern",
      // Without effect.
      "disable_any_whitespace", "disable_fallback", "disable_additional_properties", "_backend",
      "_backend_was_auto"};
  dom::object object;
  const auto value = fields.find("structured_outputs");
  if (!value || value->get(object) != simdjson::SUCCESS) {
    return;
  }
  for (const auto [name, given] : object) {
    if (!given.is_null() &&
        std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
      return outputs.wrong(excerpt(name), "is not known");
    }
  }
}

}  // namespace

void read_structure(const Fields& fields, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  read_response_format(fields, sampling);
  for (const char* name : {"guided_json", "json_schema"}) {
    read_schema(fields, name, sampling);
  }
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) {
    read_grammar(fields, name, sampling);
  }
  for (const char* name : {"guided_regex", "regex"}) {
    read_regex(fields, name, sampling);
  }
  read_choices_of_text(fields, "guided_choice", sampling);
  read_structured_outputs(fields, sampling);
  for (const char* name :
       {"choices", "format", "guided_whitespace_pattern", "stop_regex", "structural_tag"}) {
    fields.unsupported(name);
  }
}

void read_schema(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  const auto value = fields.find(name);
  if (!value) {
    return;
  }
  std::string schema;
  if (value->is_string()) {
    fields.text(name, schema);
    if (schema.empty()) {
      return;
    }
  } else if (value->is_object() || value->is_bool()) {
    schema = simdjson::minify(*value);
  } else {
    return must_be(fields.reading(), fields.param(name), "a JSON schema", *value);
  }
  set_structure(fields, name, sampling, &SamplingParams::json_schema, std::move(schema));
}

void read_any_object(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  set_structure(fields, name, sampling, &SamplingParams::json_schema, kAnyJsonObject);
}

void read_grammar(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  read_text_form(fields, name, sampling, &SamplingParams::grammar);
}

void read_regex(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  read_text_form(fields, name, sampling, &SamplingParams::regex);
}

void read_structured_outputs(const Fields& fields, SamplingParams& sampling) {
  const auto outputs = fields.object("structured_outputs");
  if (!outputs) {
    return;
  }
  for (const char* name : {"structural_tag", "whitespace_pattern", "disable_any_whitespace"}) {
    outputs->unsupported(name);
  }
  refuse_unknown(fields, *outputs);
  bool any_object = false;
  outputs->boolean("json_object", any_object);
  if (any_object) {
    read_any_object(*outputs, "json_object", sampling);
  }
  read_schema(*outputs, "json", sampling);
  read_grammar(*outputs, "grammar", sampling);
  read_regex(*outputs, "regex", sampling);
  read_choices_of_text(*outputs, "choice", sampling);
}

}  // namespace pdjob::openai
