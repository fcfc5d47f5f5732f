#include "launcher/capacity/engine_model.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Time = EngineModel::Time;

EngineModel measured() {
  EngineModel model;
  model.name = "small \"model\" in q8_0";
  model.step = {.fixed = Time(3093000.5),
                .per_prompt_token = Time(2223000),
                .per_sequence = Time(4303000),
                .per_prompt_read = Time(0.39),
                .per_context_read = Time(7020)};
  model.per_request = Time(900);
  model.kv_per_transfer = Time(1e6);
  model.kv_per_token = Time(5000);
  model.kv_tokens = 16384;
  model.unmeasured = {"kv.per_token_us"};
  model.prefill = {.median = 0.024, .largest = 0.118, .probes = 25};
  model.decode = {.median = 0.182, .largest = 0.553, .probes = 20};
  model.engine = "pdjob 0.9";
  model.date = "2026-11-28";
  model.device = "two cores, ä";
  model.notes = {"a router was measured: its time is in per_request_us"};
  model.probes = {{.name = "prompt 512 x 2", .seconds = 1.25, .model_seconds = 1.125},
                  {.name = "decode 8 at 1024", .seconds = 0.0625, .model_seconds = 0.0625}};
  return model;
}

std::string errors_of(const std::string& text) {
  const auto model = parse_engine_model("m.json", text);
  return model ? "none" : model.error().message;
}

void expect_text(const std::string& all, const std::string& part) {
  EXPECT_NE(all.find(part), std::string::npos) << part << "\nis not in\n" << all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(EngineModel, IsReadAsItWasWritten) {
  const auto read = parse_engine_model("m.json", engine_model_json(measured()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, measured());
}

TEST(EngineModel, HasFourDigitsAfterRounding) {
  EngineModel model = measured();
  model.step.fixed = Time(3093456.78);
  model.step.per_prompt_read = Time(0.123456);
  model.probes[0].seconds = 0.00123456;
  round_figures(model);
  expect_text(engine_model_json(model), R"("fixed_us": 3093, )");
  expect_text(engine_model_json(model), R"("per_prompt_read_us": 0.0001235)");
  expect_text(engine_model_json(model), R"("seconds": 0.001235)");
  EXPECT_EQ(model.per_request, Time(900));
}

TEST(EngineModel, NamesEachMissingField) {
  const std::string errors = errors_of("{}");
  for (const char* const field :
       {"engine_model", "name", "source", "step.fixed_us", "step.per_prompt_token_us",
        "step.per_sequence_us", "step.per_prompt_read_us", "step.per_context_read_us"}) {
    expect_text(errors, std::string("m.json:1:1: ") + field + ": is missing\n");
  }
}

TEST(EngineModel, RefusesTimesThatAreNone) {
  const std::string good = engine_model_json(measured());
  const std::string field = R"("fixed_us": 3093.0005)";
  expect_text(errors_of(replaced(good, field, R"("fixed_us": -1)")),
              "step.fixed_us: must be 0..1e+08, got -1");
  expect_text(errors_of(replaced(good, field, R"("fixed_us": nan)")),
              "step.fixed_us: expected a number, got \"nan\"");
  expect_text(errors_of(replaced(good, field, R"("fixed_us": 1e999)")),
              "step.fixed_us: expected a number, got \"1e999\"");
  expect_text(errors_of(replaced(good, field + ", ", "")), "step.fixed_us: is missing");
}

TEST(EngineModel, RefusesUnknownFieldsAndAnotherForm) {
  const std::string good = engine_model_json(measured());
  expect_text(errors_of(replaced(good, "per_request_us", "per_requests_us")),
              "per_requests_us: unknown key, did you mean per_request_us?");
  expect_text(errors_of(replaced(good, R"("engine_model": 1)", R"("engine_model": 2)")),
              "engine_model: must be 1..1, got 2");
}

TEST(EngineModel, OfPublishedMeasurementsSaysWhereItWasRead) {
  EngineModel model = measured();
  model.source = ModelSource::kRead;
  expect_text(errors_of(engine_model_json(model)), "read_from: is missing");
  model.read_from = "h100.json (vllm-bench)";
  EXPECT_EQ(label(model),
            "small \"model\" in q8_0, read from published measurements (h100.json (vllm-bench)) "
            "2026-11-28, errors (median/largest): prefill 2.4 %/12 %, decode 18 %/55 %");
}

TEST(EngineModel, RefusesTextsWithoutEnd) {
  EngineModel model = measured();
  model.device = std::string(501, 'x');
  expect_text(errors_of(engine_model_json(model)), "device: must be at most 500 bytes, got 501");
}

TEST(EngineModel, IsNoEndlessFile) {
  expect_text(errors_of(std::string(10000, '[')), "m.json:");
  expect_text(errors_of(std::string(1 << 20, ' ')), "m.json:");
  expect_text(errors_of("[1]"), "m.json:1:1");
}

}  // namespace
}  // namespace pdjob::launcher
