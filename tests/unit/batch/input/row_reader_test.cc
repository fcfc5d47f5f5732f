#include "batch/input/row_reader.h"

#include <gtest/gtest.h>

#include "batch/input/csv_cursor.h"

namespace pdjob::batch {
namespace {

RowReader reader(const std::string& body_template = "", const std::string& id_column = "") {
  RowRules rules{.id_column = id_column};
  if (!body_template.empty()) {
    rules.body = BodyTemplate::parse(body_template).value();
  }
  return RowReader(std::move(rules));
}

std::string error_of(const RowReader& reader, std::string text, RowReader::Position place = {}) {
  RowError error;
  return reader.request(text, place, error) ? "no error" : error.code + ": " + error.message;
}

constexpr const char* kRow =
    R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}})";

TEST(RowReader, ReadsARowOfOpenAisBatchFile) {
  std::string text = kRow;
  RowError error;
  const auto request = reader().request(text, {}, error);
  ASSERT_TRUE(request) << error.message;
  EXPECT_EQ(request->custom_id, "a");
  EXPECT_EQ(request->target, "/v1/completions");
  EXPECT_EQ(request->body, R"({"prompt": "x"})");
}

TEST(RowReader, AsksForOneWholeReply) {
  std::string text = R"({"custom_id": "a", "url": "/v1/completions", )"
                     R"("body": {"stream": true, "prompt": "x", "stream_options": {}}})";
  RowError error;
  EXPECT_EQ(reader().request(text, {}, error)->body, R"({"prompt": "x"})");
}

TEST(RowReader, SaysWhatIsWrongWithARow) {
  const RowReader rows = reader();
  EXPECT_EQ(error_of(rows, "{"), "invalid_json_line: it is not a JSON object");
  EXPECT_EQ(error_of(rows, "\xff{}"), "invalid_utf8: it is not valid UTF-8");
  EXPECT_EQ(error_of(rows, R"({"url": "/v1/completions", "body": {}})"),
            "invalid_custom_id: its custom_id must be a text of 1 to 1024 bytes");
  EXPECT_EQ(error_of(rows, R"({"custom_id": "a", "method": "GET", "url": "/v1/completions"})"),
            "invalid_method: its method must be POST");
  EXPECT_EQ(error_of(rows, R"({"custom_id": "a", "url": "/v1/files", "body": {}})"),
            "invalid_url: its url must be /v1/chat/completions, /v1/completions or "
            "/v1/embeddings");
  EXPECT_EQ(error_of(rows, R"({"custom_id": "a", "url": "/v1/completions", "body": [1]})"),
            "invalid_body: its body is not a JSON object");
}

TEST(RowReader, PredictsTheLengthOfAnAnswer) {
  const auto weight = [](std::string body) {
    std::string text = R"({"custom_id":"a","url":"/v1/completions","body":)" + body + "}";
    return reader().glance(text, {}).weight;
  };
  EXPECT_EQ(weight(R"({"max_tokens":40})"), 40U);
  EXPECT_EQ(weight(R"({"max_tokens":40,"n":3})"), 120U);
  EXPECT_EQ(weight(R"({"max_completion_tokens":7,"max_tokens":40})"), 7U);
  EXPECT_EQ(weight(R"({"n_predict":7,"max_tokens":40})"), 7U);
  EXPECT_GT(weight("{}"), 100U);
}

TEST(RowReader, SeesWhichPromptsBeginAlike) {
  const auto beginning = [](const std::string& prompt) {
    std::string text =
        R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":")" + prompt + "\"}}";
    return reader().glance(text, {}).beginning;
  };
  const std::string page(2000, 'p');
  const std::string other = "q" + page;
  EXPECT_EQ(beginning("short"), 0U);
  EXPECT_EQ(beginning(page + "one"), beginning(page + "two"));
  EXPECT_EQ(beginning(page) >> 32, beginning(page + std::string(4000, 'x')) >> 32)
      << "near each other";
  EXPECT_NE(beginning(page), beginning(page + std::string(4000, 'x')));
  EXPECT_NE(beginning(page) >> 48, beginning(other) >> 48);
  std::string chat = R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[)"
                     R"({"role":"user","content":")" +
                     page + R"("}]}})";
  EXPECT_NE(reader().glance(chat, {}).beginning, 0U);
}

TEST(RowReader, TakesRowsOfEmbeddings) {
  std::string text =
      R"({"custom_id": "a", "url": "/v1/embeddings", "body": {"input": ["x", "y"]}})";
  EXPECT_LT(reader().glance(text, {}).weight, 5U) << "nothing is generated";
  RowError error;
  const auto request = reader().request(text, {}, error);
  ASSERT_TRUE(request) << error.message;
  EXPECT_EQ(request->target, "/v1/embeddings");
  const RowReader filled = reader(R"({"input": "{{text}}"})");
  std::string line = "a line";
  const auto row = filled.request(line, {.format = RowFormat::kText, .number = 1}, error);
  ASSERT_TRUE(row) << error.message;
  EXPECT_EQ(row->target, "/v1/embeddings");
}

TEST(RowReader, FillsATemplateFromCsv) {
  const RowReader rows = reader(
      R"({"prompt": "Say \"{{ word }}\"", "max_tokens": {{count}}, "user": {{word}}})", "id");
  std::string text = "7,\"a \"\"b\"\"\nc\",5";
  RowError error;
  const auto request = rows.request(
      text, {.format = RowFormat::kCsv, .number = 3, .header = "id,word,count"}, error);
  ASSERT_TRUE(request) << error.message;
  EXPECT_EQ(request->custom_id, "7");
  EXPECT_EQ(request->target, "/v1/completions");
  EXPECT_EQ(request->body,
            R"({"prompt": "Say \"a \"b\"\nc\"", "max_tokens": 5, "user": "a \"b\"\nc"})");
}

TEST(RowReader, FillsATemplateFromJsonAndText) {
  const RowReader rows = reader(R"({"messages": [{"role": "user", "content": "{{text}}"}]})");
  RowError error;
  std::string json = R"({"text": "caf\u00e9 \"x\""})";
  const auto from_json = rows.request(json, {.format = RowFormat::kJsonl, .number = 8}, error);
  ASSERT_TRUE(from_json) << error.message;
  EXPECT_EQ(from_json->custom_id, "row-8");
  EXPECT_EQ(from_json->target, "/v1/chat/completions");
  EXPECT_EQ(from_json->body, R"({"messages": [{"role": "user", "content": "café \"x\""}]})");
  std::string line = "a \\ b";
  EXPECT_EQ(rows.request(line, {.format = RowFormat::kText, .number = 1}, error)->body,
            R"({"messages": [{"role": "user", "content": "a \\ b"}]})");
}

TEST(RowReader, SaysWhichColumnIsMissing) {
  const RowReader rows = reader(R"({"prompt": "{{word}}"})", "id");
  const RowReader::Position place{.format = RowFormat::kCsv, .number = 1, .header = "id,other"};
  EXPECT_EQ(error_of(rows, "1,2", place),
            "invalid_row: it has no column word, which the template names");
  EXPECT_EQ(error_of(rows, "1,2,3", place), "invalid_row: it has 3 columns, but the header has 2");
  EXPECT_EQ(error_of(rows, "{\"word\":\"x\"}", {.format = RowFormat::kJsonl, .number = 1}),
            "invalid_custom_id: it has no column id");
}

TEST(BodyTemplate, MustBeAnObjectOnceItIsFilled) {
  EXPECT_FALSE(BodyTemplate::parse(R"(["{{a}}"])"));
  EXPECT_FALSE(BodyTemplate::parse(R"({"a": {{b}})"));
  EXPECT_TRUE(BodyTemplate::parse(R"({"a": {"b": {"c": "}}"}}})"));
}

TEST(RowReader, FillsATemplateFromColumnsWithTabs) {
  const RowReader rows = reader(R"({"prompt": "{{a}}|{{b}}"})");
  RowError error;
  std::string text = "x, \"y\"\t\"z\tz\"";
  const auto request =
      rows.request(text, {.format = RowFormat::kTsv, .number = 1, .header = "a\tb"}, error);
  ASSERT_TRUE(request) << error.message;
  EXPECT_EQ(request->body, R"({"prompt": "x, \"y\"|z\tz"})");
}

TEST(SplitCsv, FollowsRfc4180) {
  using Fields = std::vector<std::string>;
  EXPECT_EQ(split_csv("a,,\"b,c\",\"\"", ',').value(), (Fields{"a", "", "b,c", ""}));
  EXPECT_EQ(split_csv("\"x\"\"y\"", ',').value(), (Fields{"x\"y"}));
  EXPECT_FALSE(split_csv("\"open", ','));
}

TEST(SplitCsv, AQuoteInsideAFieldIsText) {
  using Fields = std::vector<std::string>;
  EXPECT_EQ(split_csv("a 5\" nail,6\"", ',').value(), (Fields{"a 5\" nail", "6\""}));
  EXPECT_EQ(split_csv("1,\"a \\\" b\"", ',').value(), (Fields{"1", "a \\ b\""}));
  EXPECT_EQ(split_csv(" \"a\",\"\"b\"\"", ',').value(), (Fields{" \"a\"", "b\"\""}));
}

TEST(RowFormat, GoesByTheEndOfTheName) {
  EXPECT_EQ(format_of("a.tsv", true), RowFormat::kTsv);
  EXPECT_EQ(format_of("A.CSV.gz", true), RowFormat::kCsv);
  EXPECT_EQ(format_of("csv", true), RowFormat::kJsonl);
  EXPECT_EQ(packing_of("A.CSV.GZ"), Packing::kGzip);
}

}  // namespace
}  // namespace pdjob::batch
