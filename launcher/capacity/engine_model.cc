#include "launcher/capacity/engine_model.h"

#include <array>
#include <cmath>
#include <utility>

#include "common/config/config_file.h"
#include "common/config/named_items.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kForm = 1;
constexpr double kMicrosecondsMax = 1e8;  // 100 s.
constexpr uint64_t kKvTokensMax = uint64_t{1} << 40;
constexpr size_t kTextBytesMax = 500;
constexpr size_t kTextsMax = 32;

void time_field(ConfigReader& in, const char* key, EngineModel::Time& time, const char* doc) {
  double microseconds = time.count() / 1e3;
  in.field(key, microseconds, {doc, "us"}, {.min = 0, .max = kMicrosecondsMax});
  time = EngineModel::Time(microseconds * 1e3);
}

void text_field(ConfigReader& in, const char* key, std::string& text, const char* doc) {
  in.field(key, text, {doc});
  if (text.size() > kTextBytesMax) {
    in.fail(key, "must be at most " + std::to_string(kTextBytesMax) + " bytes, got " +
                     std::to_string(text.size()));
  }
}

void texts_field(ConfigReader& in, const char* key, std::vector<std::string>& texts,
                 const char* doc) {
  in.field(key, texts, {doc});
  bool fits = texts.size() <= kTextsMax;
  for (const std::string& text : texts) {
    fits = fits && text.size() <= kTextBytesMax;
  }
  if (!fits) {
    in.fail(key, "must be at most " + std::to_string(kTextsMax) + " texts of at most " +
                     std::to_string(kTextBytesMax) + " bytes");
  }
}

void need(ConfigReader& in, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (!in.has(key)) {
      in.fail(key, "is missing");
    }
  }
}

void error_section(ConfigReader& in, const char* key, ModelError& error, const char* doc) {
  in.section(key, {doc}, [&error](ConfigReader& part) {
    part.field("median", error.median, {"The median relative error; 0.02 is 2 %."}, {.min = 0});
    part.field("largest", error.largest, {"The largest relative error."}, {.min = 0});
    part.field("probes", error.probes, {"How many measurements; 0: none."}, {});
  });
}

std::string percent(double share) {
  const double value = 100 * share;
  // One digit below 10 %.
  const auto tenths = static_cast<int64_t>(std::llround(value < 10 ? value * 10 : value));
  return value < 10 ? std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " %"
                    : std::to_string(tenths) + " %";
}

}  // namespace

void read(ConfigReader& in, EngineModel& model) {
  uint32_t form = kForm;
  in.field("engine_model", form, {"The version of this form."}, {.min = kForm, .max = kForm});
  text_field(in, "name", model.name, "What reports call it.");
  in.field("source", model.source,
           {{"measured", ModelSource::kMeasured}, {"read", ModelSource::kRead}},
           {"`measured` by `pdjob tune --measure`, or `read` from published measurements."});
  text_field(in, "read_from", model.read_from, "The files that were read, and their kind.");
  text_field(in, "engine", model.engine, "The engine and its version.");
  text_field(in, "date", model.date, "When it was measured.");
  text_field(in, "device", model.device, "The machine, in the operator's words.");
  in.section("step", {"The time of a step is the sum of these, as often as the step has each."},
             [&model](ConfigReader& step) {
               time_field(step, "fixed_us", model.step.fixed, "Each step.");
               time_field(step, "per_prompt_token_us", model.step.per_prompt_token,
                          "Each token of a prompt.");
               time_field(step, "per_sequence_us", model.step.per_sequence,
                          "Each sequence that decodes.");
               time_field(step, "per_prompt_read_us", model.step.per_prompt_read,
                          "Each row that a token of a prompt reads: all rows up to it.");
               time_field(step, "per_context_read_us", model.step.per_context_read,
                          "Each row that a decoding sequence reads.");
               need(step, {"fixed_us", "per_prompt_token_us", "per_sequence_us",
                           "per_prompt_read_us", "per_context_read_us"});
             });
  time_field(in, "per_request_us", model.per_request,
             "Each request, outside of steps: HTTP, tokenizing, the router.");
  in.section("kv", {"The time of a KV transfer from a prefill to a decode worker."},
             [&model](ConfigReader& kv) {
               time_field(kv, "per_transfer_us", model.kv_per_transfer, "Each transfer.");
               time_field(kv, "per_token_us", model.kv_per_token, "Each token of its prompt.");
             });
  in.field("kv_tokens", model.kv_tokens,
           {"Tokens that the KV memory of one engine holds; 0: unknown.", "tokens"},
           {.max = kKvTokensMax});
  texts_field(in, "unmeasured", model.unmeasured, "Times that no measurement tells.");
  in.section("errors", {"The model against its measurements, by kind."},
             [&model](ConfigReader& errors) {
               error_section(errors, "prefill", model.prefill, "Prompts.");
               error_section(errors, "decode", model.decode, "Steps of decoding sequences.");
               error_section(errors, "mixed", model.mixed, "Steps of both; they are not fitted.");
               error_section(errors, "kv", model.kv, "KV transfers.");
             });
  texts_field(in, "notes", model.notes, "How it was measured, and where times come from.");
  named_items(
      in, "probes", {"The measurements."}, model.probes, [](ModelProbe& probe, ConfigReader& one) {
        one.field("seconds", probe.seconds, {"Measured.", "s"}, {.min = 0});
        one.field("model_seconds", probe.model_seconds, {"As the model says.", "s"}, {.min = 0});
      });
  if (model.probes.size() > kModelProbesMax) {
    in.fail("probes", "must be at most " + std::to_string(kModelProbesMax) + ", got " +
                          std::to_string(model.probes.size()));
  }
  need(in, {"engine_model", "name", "source"});
  if (model.source == ModelSource::kRead && model.read_from.empty()) {
    in.fail("read_from", "is missing: source is read");
  }
}

Result<EngineModel> parse_engine_model(const std::string& name, const std::string& text) {
  ConfigReader in = ConfigReader::parse(name, text);
  EngineModel model;
  read(in, model);
  if (std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::move(errors)};
  }
  return model;
}

Result<EngineModel> read_engine_model(const std::string& path) {
  PDJOB_TRY(const std::string text, read_config_file(path));
  return parse_engine_model(path, text);
}

std::string engine_model_json(const EngineModel& model) {
  ConfigReader out = ConfigReader::write();
  EngineModel written = model;
  read(out, written);
  std::string text = "{";
  const auto line_of = [&text](const ConfigEntry& entry, const char* indent) {
    ConfigNode key{.kind = ConfigNode::Kind::kText, .text = entry.key};
    text += text.ends_with('{') ? "\n" : ",\n";
    text += indent + json_of(key) + ": ";
  };
  for (const ConfigEntry& entry : out.values().entries) {
    line_of(entry, "  ");
    if (entry.key != "probes") {
      text += json_of(entry.value);
      continue;
    }
    text += '{';
    for (const ConfigEntry& probe : entry.value.entries) {
      line_of(probe, "    ");
      text += json_of(probe.value);
    }
    text += "\n  }";
  }
  return text + "\n}\n";
}

std::string label(const EngineModel& model) {
  std::string text = model.name;
  text += model.source == ModelSource::kMeasured
              ? ", measured"
              : ", read from published measurements (" + model.read_from + ")";
  if (!model.date.empty()) {
    text += ' ' + model.date;
  }
  const char* before = ", errors (median/largest): ";
  const std::array<std::pair<const char*, const ModelError*>, 4> kinds{{{"prefill", &model.prefill},
                                                                        {"decode", &model.decode},
                                                                        {"mixed", &model.mixed},
                                                                        {"KV", &model.kv}}};
  for (const auto& [kind, error] : kinds) {
    if (error->probes > 0) {
      text += std::exchange(before, ", ") + std::string(kind) + ' ' + percent(error->median) + '/' +
              percent(error->largest);
    }
  }
  return text;
}

}  // namespace pdjob::launcher
