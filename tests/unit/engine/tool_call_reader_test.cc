#include "engine/tool_call_reader.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

struct Split {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // Name, arguments.
  bool ends_in_calls = false;
};

// Reads `text` in pieces of `step` bytes.
Split split(std::string_view text, size_t step) {
  ToolCallReader reader;
  Split out;
  std::vector<ToolCallPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) {
    pieces.clear();
    reader.read(text.substr(at, step), out.content, pieces);
    for (const ToolCallPiece& piece : pieces) {
      EXPECT_EQ(piece.call < out.calls.size(), piece.name.empty());
      if (!piece.name.empty()) {
        EXPECT_EQ(piece.call, out.calls.size());
        out.calls.emplace_back(piece.name, "");
      }
      out.calls[piece.call].second += piece.arguments;
    }
  }
  reader.finish(out.content);
  out.ends_in_calls = reader.ends_in_calls();
  return out;
}

void expect_split(std::string_view text, const Split& expected) {
  for (size_t step = 1; step <= text.size(); ++step) {
    const Split got = split(text, step);
    EXPECT_EQ(got.content, expected.content) << text << " by " << step;
    EXPECT_EQ(got.calls, expected.calls) << text << " by " << step;
    EXPECT_EQ(got.ends_in_calls, expected.ends_in_calls) << text << " by " << step;
  }
}

std::string call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

TEST(ToolCallReader, TextWithoutACallIsContent) {
  expect_split("Hello, <b>world</b>!\n", {.content = "Hello, <b>world</b>!\n"});
  expect_split("1 < 2 <tool", {.content = "1 < 2 <tool"});
  expect_split("<<<tool_<tool_call", {.content = "<<<tool_<tool_call"});
  expect_split(std::string(300, ' ') + "x", {.content = std::string(300, ' ') + "x"});
}

TEST(ToolCallReader, SplitsContentAndCalls) {
  expect_split("Let me look.\n" + call("get-weather_2", R"({"city": "Paris"})"),
               {.content = "Let me look.",
                .calls = {{"get-weather_2", R"({"city": "Paris"})"}},
                .ends_in_calls = true});
  expect_split(call("a", "{}") + "\n" + call("b", R"({"x":[{"y":1}]})") + "\n",
               {.calls = {{"a", "{}"}, {"b", R"({"x":[{"y":1}]})"}}, .ends_in_calls = true});
  expect_split(call("a", "{}") + " Done.",
               {.content = " Done.", .calls = {{"a", "{}"}}, .ends_in_calls = true});
}

TEST(ToolCallReader, StringsOfArgumentsMayHoldAnything) {
  const std::string arguments =
      R"({"a": "}]\"{", "b": "</tool_call>\\", "c": "<tool_call>", "d": "\\\""})";
  expect_split(call("f", arguments), {.calls = {{"f", arguments}}, .ends_in_calls = true});
}

TEST(ToolCallReader, ACallThatIsCutStaysACall) {
  const std::string whole = call("f", R"({"a": "b"})");
  const size_t arguments = whole.find("{\"a\"");
  for (size_t size = arguments; size < whole.size(); ++size) {
    const Split got = split(whole.substr(0, size), 3);
    ASSERT_EQ(got.calls.size(), 1U) << size;
    EXPECT_EQ(got.content, "") << size;
    EXPECT_FALSE(got.ends_in_calls) << size;
  }
  expect_split("<tool_call>\n{\"name", {.content = "<tool_call>\n{\"name"});
}

TEST(ToolCallReader, WhatBreaksTheFormIsContent) {
  expect_split("<tool_call>hello</tool_call>", {.content = "<tool_call>hello</tool_call>"});
  expect_split("<tool_call>\n{\"name\": \"a\" , 1",
               {.content = "<tool_call>\n{\"name\": \"a\" , 1"});
  const std::string long_name = "<tool_call>\n{\"name\": \"" + std::string(200, 'n') + "\"";
  expect_split(long_name, {.content = long_name});
  expect_split("<tool_call>" + call("f", "{}"),
               {.content = "<tool_call>", .calls = {{"f", "{}"}}, .ends_in_calls = true});
}

}  // namespace
}  // namespace pdjob::engine
