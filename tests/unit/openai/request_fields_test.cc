// Walks the fields that other servers' requests have, and what the parsers here make of each. A new
// field in tests/data/request_fields.json fails by its name until somebody decides what it means.
#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "openai/openai.h"
#include "openai/openai_fields.h"
#include "openai/tokenize_request.h"
#include "tests/support/known_fields.h"

namespace pdjob::openai {
namespace {

using Json = nlohmann::json;

constexpr const char* kAccepted = "accepted";

// A route, with a request that has only what it needs. Value.
struct Route {
  std::vector<KnownField> known;
  Json request;
  std::function<std::string(const std::string&)> refused;  // The field, or kAccepted.
};

std::string param_of(const ApiError& error) { return error.status == 400 ? error.param : "status"; }

template <class Parsed>
std::string refused_in(const Parsed& parsed) {
  return parsed ? kAccepted : param_of(parsed.error());
}

Route route_of(ApiKind kind, const char* request) {
  return {known_fields(kind), Json::parse(request),
          [kind](const std::string& body) { return refused_in(parse_api_request(kind, body)); }};
}

const std::map<std::string, Route>& routes() {
  static const std::map<std::string, Route> all = {
      {"/v1/chat/completions",
       route_of(ApiKind::kChat, R"({"messages":[{"role":"user","content":"a"}]})")},
      {"/v1/completions", route_of(ApiKind::kCompletion, R"({"prompt":"a"})")},
      {"/v1/responses", route_of(ApiKind::kResponses, R"({"input":"a"})")},
      {"/v1/embeddings", route_of(ApiKind::kEmbedding, R"({"input":"a"})")},
      {"/generate", route_of(ApiKind::kSglang, R"({"text":"a"})")},
      {"/inference/v1/generate", route_of(ApiKind::kTokens, R"({"token_ids":[1]})")},
      {"/tokenize",
       {known_tokenize_fields(), Json::parse(R"({"prompt":"a"})"),
        [](const std::string& body) { return refused_in(parse_tokenize_request(body)); }}},
      {"/detokenize",
       {known_detokenize_fields(), Json::parse(R"({"tokens":[1]})"),
        [](const std::string& body) { return refused_in(parse_detokenize_request(body, 8)); }}}};
  return all;
}

// A field of one server's requests, and what is known of it here. Value.
struct Field {
  std::string source;  // "vllm 0.33.0 /v1/completions: echo"
  const Route* route = nullptr;
  std::string inside;  // The member that has it; empty: the body itself.
  std::string name;
  Json value;             // Its default.
  bool required = false;  // It has none.
  const KnownField* known = nullptr;

  std::string param() const { return inside.empty() ? name : inside + "." + name; }
  // Returns what is refused in a request with this value.
  std::string refused(const Json& given, Json request) const {
    request.update(route->request);
    (inside.empty() ? request : request[inside])[name] = given;
    return route->refused(request.dump());
  }
  std::string refused(const Json& given) const { return refused(given, Json::object()); }
};

std::vector<Field> all_fields() {
  std::vector<Field> fields;
  std::ifstream file(PDJOB_REQUEST_FIELDS);
  for (const Json& list : Json::parse(file)) {
    const std::string path = list.at("route");
    const Route& route = routes().at(path);
    std::string source = list.at("source").get<std::string>() + " ";
    source.append(list.at("version").get<std::string>()).append(" ").append(path).append(": ");
    const auto add = [&](const std::string& name, const Json& value, bool required) {
      Field& field = fields.emplace_back();
      field = {.source = source,
               .route = &route,
               .inside = list.value("inside", ""),
               .name = name,
               .value = value,
               .required = required};
      field.source += name;
      const auto found = std::ranges::find(route.known, field.param(), &KnownField::name);
      field.known = found == route.known.end() ? nullptr : &*found;
    };
    for (const Json& name : list.at("required")) {
      add(name, nullptr, true);
    }
    for (const auto& [name, value] : list.at("defaults").items()) {
      add(name, value, false);
    }
  }
  return fields;
}

// Some of any type.
const Json& values() {
  static const Json some = Json::parse(R"([true, 7, "x", ["x"], {"x": 1}])");
  return some;
}

bool names(const std::string& param, const Field& field) {
  const std::string name = field.param();
  return param == name || param.starts_with(name + ".") || param.starts_with(name + "[");
}

TEST(RequestFields, EachFieldOfOtherServersIsDecided) {
  const auto fields = all_fields();
  EXPECT_GT(fields.size(), 800U);
  for (const Field& field : fields) {
    EXPECT_NE(field.known, nullptr)
        << field.source << " is ignored: obey it, or name it in openai/unserved_fields.cc";
  }
}

TEST(RequestFields, NullAndDefaultsAskForNothing) {
  for (const Field& field : all_fields()) {
    if (field.required || field.route->request.contains(field.name)) {
      continue;
    }
    EXPECT_EQ(field.refused(nullptr), kAccepted) << field.source;
    EXPECT_EQ(field.refused(field.value), kAccepted) << field.source << " = " << field.value;
  }
}

TEST(RequestFields, WhatIsRefusedIsRefusedByItsNameIfItAsksForSomething) {
  for (const Field& field : all_fields()) {
    if (field.known == nullptr || !field.known->refused) {
      continue;
    }
    for (const Json& value : values()) {
      // What some fields need to matter.
      const Json request = field.inside.empty() ? Json({{"presence_penalty", 1}}) : Json::object();
      EXPECT_TRUE(names(field.refused(value, request), field)) << field.source << " = " << value;
    }
    for (const Json& value : Json::parse(R"([false, "", [], {}])")) {
      EXPECT_EQ(field.refused(value), kAccepted) << field.source << " = " << value;
    }
  }
}

TEST(RequestFields, FieldsWithoutEffectAreAccepted) {
  for (const Field& field : all_fields()) {
    if (field.known == nullptr || !field.known->idle) {
      continue;
    }
    EXPECT_FALSE(field.known->refused) << field.source;
    for (const Json& value : values()) {  // The type of some is checked.
      const std::string refused = field.refused(value);
      EXPECT_TRUE(refused == kAccepted || names(refused, field)) << field.source << " = " << value;
    }
  }
}

TEST(RequestFields, TypesOfSupportedFieldsAreChecked) {
  // By the beginning of what is allowed; an empty one is of every field.
  const std::vector<std::pair<std::string, const char*>> wrong = {
      {"true or false", R"([7, "x", ["x"]])"},
      {"only true", R"([false, 7, "x"])"},
      {"only false", R"([true, 7, "x"])"},
      {"a string", R"([7, true, ["x"], {"x": 1}])"},
      {"a list", "[7, true]"},
      {"an object", "[7, true]"},
      {"an integer", R"([1.5, "x", [1]])"},
      {"a number", R"([true, "x", [1]])"},
      {"", "[1.5]"}};
  for (const Field& field : all_fields()) {
    if (field.known == nullptr || field.known->refused || field.known->idle) {
      continue;
    }
    const auto kind = std::ranges::find_if(
        wrong, [&](const auto& each) { return field.known->allowed.starts_with(each.first); });
    for (const Json& value : Json::parse(kind->second)) {
      EXPECT_TRUE(names(field.refused(value), field)) << field.source << " = " << value;
    }
  }
}

}  // namespace
}  // namespace pdjob::openai
