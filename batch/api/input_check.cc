#include "batch/api/input_check.h"

#include <array>
#include <optional>
#include <utility>

#include "batch/input/byte_source.h"
#include "batch/input/row_reader.h"
#include "batch/input/row_splitter.h"
#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr std::array<std::string_view, 1> kModelField = {"model"};
constexpr openai::JsonNames kModelName{kModelField};

class InputCheck {
 public:
  explicit InputCheck(const InputRules& rules) : rules_(rules) {}

  Status take(const RawRow& row) {
    if (++facts_.rows > rules_.rows_max) {
      add({"too_many_requests",
           "the file has more than " + std::to_string(rules_.rows_max) + " requests", 0});
      return stopped();
    }
    check(row);
    return facts_.errors.size() < kInputErrorsMax ? ok() : stopped();
  }

  InputFacts end() {
    if (facts_.rows == 0) {
      add({"empty_file", "the file has no requests", 0});
    }
    facts_.model = same_model_.value_or("");
    return std::move(facts_);
  }

 private:
  // Ends the reading; the errors say why.
  static Status stopped() { return Error{ErrorCode::kCancelled, "enough errors"}; }
  void add(InputError error) { facts_.errors.push_back(std::move(error)); }

  void check(const RawRow& row) {
    if (row.length > kRowBytesMax) {
      add({"row_too_long", "the line has more than " + std::to_string(kRowBytesMax) + " bytes",
           row.line});
      return;
    }
    RowError error;
    auto request = reader_.request(
        *row.text, {.format = RowFormat::kOpenAi, .number = facts_.rows, .header = {}}, error);
    if (!request) {
      add({error.code, error.message, row.line});
      return;
    }
    if (request->target != rules_.endpoint) {
      add({"invalid_url", "its url must be the batch's endpoint, " + rules_.endpoint, row.line});
      return;
    }
    note_model(request->body);
  }

  void note_model(std::string& body) {
    body.reserve(body.size() + openai::JsonObject::kSlack);
    const auto object = openai::JsonObject::scan(body, kModelName);
    const std::string model =
        object ? openai::json_string(object->value("model")).value_or("") : "";
    if (facts_.rows == 1) {
      same_model_ = model;
    } else if (same_model_ != model) {
      same_model_.reset();
    }
  }

  const InputRules& rules_;
  const RowReader reader_{RowRules{}};
  InputFacts facts_;
  std::optional<std::string> same_model_;
};

}  // namespace

Result<InputFacts> check_input(const std::string& path, const InputRules& rules) {
  PDJOB_TRY(const auto source, ByteSource::open(path, Packing::kNone));
  InputCheck check(rules);
  RowSplitter splitter(RowFormat::kOpenAi, [&](const RawRow& row) { return check.take(row); });
  std::string buffer(kReadBytes, '\0');
  Status taken = ok();
  size_t got = 1;
  while (taken && got > 0) {
    PDJOB_TRY(got, source->read(buffer));
    taken = got > 0 ? splitter.feed(std::string_view(buffer).substr(0, got)) : splitter.finish();
  }
  if (!taken && taken.error().code != ErrorCode::kCancelled) {
    return taken.error();
  }
  return check.end();
}

std::string errors_text(const std::vector<InputError>& errors) {
  std::string text;
  for (const InputError& error : errors) {
    text += text.empty() ? "" : ",";
    JsonWriter json(text);
    json.begin_object();
    json.key("code").string(error.code);
    json.key("line");
    error.line == 0 ? json.null() : json.integer(error.line);
    json.key("message").string(error.message);
    json.key("param").null();
    json.end_object();
  }
  return text;
}

}  // namespace pdjob::batch
