#include "batch/catalog/api_records.h"

#include <iterator>

#include "common/check.h"
#include "common/json/json_fields.h"
#include "common/json/json_writer.h"

namespace pdjob::batch {
namespace {

constexpr const char* kStates[] = {"validating", "in_progress", "finalizing", "cancelling",
                                   "completed",  "failed",      "expired",    "cancelled"};

// Calls `text` and `number` for each field, so that reading and writing cannot differ.
void each_field(auto& file, const auto& text, const auto& number)
  requires requires { file.purpose; }
{
  text("id", file.id);
  text("tenant", file.tenant);
  text("filename", file.filename);
  text("purpose", file.purpose);
  number("bytes", file.bytes);
  number("created_at", file.created_at);
  number("expires_at", file.expires_at);
}

void each_field(auto& batch, const auto& text, const auto& number)
  requires requires { batch.endpoint; }
{
  text("id", batch.id);
  text("tenant", batch.tenant);
  text("endpoint", batch.endpoint);
  text("input_file_id", batch.input_file_id);
  text("completion_window", batch.completion_window);
  text("metadata", batch.metadata);
  text("errors", batch.errors);
  text("model", batch.model);
  text("output_file_id", batch.output_file_id);
  text("error_file_id", batch.error_file_id);
  number("output_lifetime", batch.output_lifetime);
  number("created_at", batch.created_at);
  number("expires_at", batch.expires_at);
  number("in_progress_at", batch.in_progress_at);
  number("finalizing_at", batch.finalizing_at);
  number("cancelling_at", batch.cancelling_at);
  number("ended_at", batch.ended_at);
  number("total", batch.total);
  number("completed", batch.completed);
  number("failed", batch.failed);
  number("input_tokens", batch.input_tokens);
  number("output_tokens", batch.output_tokens);
}

void write_fields(JsonWriter& json, const auto& record) {
  each_field(
      record, [&](const char* key, const std::string& value) { json.key(key).string(value); },
      [&](const char* key, int64_t value) { json.key(key).integer(value); });
}

void read_fields(JsonFields& fields, auto& record) {
  each_field(
      record, [&](const char* key, std::string& value) { fields.take(key, value); },
      [&](const char* key, int64_t& value) { fields.take(key, value); });
}

void text_or_null(JsonWriter& json, const char* key, const std::string& text) {
  json.key(key);
  text.empty() ? json.null() : json.string(text);
}

void time_or_null(JsonWriter& json, const char* key, int64_t time) {
  json.key(key);
  time == 0 ? json.null() : json.integer(time);
}

void append_errors(JsonWriter& json, const BatchRecord& batch) {
  json.key("errors");
  if (batch.errors.empty()) {
    json.null();
    return;
  }
  json.begin_object().key("object").string("list");
  json.key("data").raw("[" + batch.errors + "]");
  json.end_object();
}

void append_usage(JsonWriter& json, const BatchRecord& batch) {
  json.key("usage").begin_object();
  json.key("input_tokens").integer(batch.input_tokens);
  json.key("input_tokens_details").begin_object().key("cached_tokens").integer(0).end_object();
  json.key("output_tokens").integer(batch.output_tokens);
  json.key("output_tokens_details").begin_object().key("reasoning_tokens").integer(0).end_object();
  json.key("total_tokens").integer(batch.input_tokens + batch.output_tokens);
  json.end_object();
}

}  // namespace

const char* to_string(BatchState state) {
  const auto index = static_cast<size_t>(state);
  PDJOB_CHECK(index < std::size(kStates), index);
  return kStates[index];
}

std::string stored_text(const FileRecord& file) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  write_fields(json, file);
  json.end_object();
  return text;
}

std::string stored_text(const BatchRecord& batch) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("state").string(to_string(batch.state));
  write_fields(json, batch);
  json.end_object();
  return text;
}

Status read_stored(const std::string& text, FileRecord& file) {
  JsonFields fields("a stored file", text);
  read_fields(fields, file);
  return fields.status();
}

Status read_stored(const std::string& text, BatchRecord& batch) {
  JsonFields fields("a stored batch", text);
  std::string state;
  fields.take("state", state);
  read_fields(fields, batch);
  PDJOB_TRY_STATUS(fields.status());
  for (size_t i = 0; i < std::size(kStates); ++i) {
    if (state == kStates[i]) {
      batch.state = static_cast<BatchState>(i);
      return ok();
    }
  }
  return Error{ErrorCode::kCorrupt, "a stored batch: unknown state " + state};
}

std::string file_object(const FileRecord& file) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("id").string(file.id);
  json.key("object").string("file");
  json.key("bytes").integer(file.bytes);
  json.key("created_at").integer(file.created_at);
  json.key("expires_at").integer(file.expires_at);
  json.key("filename").string(file.filename);
  json.key("purpose").string(file.purpose);
  json.key("status").string("processed");
  json.key("status_details").null();
  json.end_object();
  return text;
}

std::string batch_object(const BatchRecord& batch) {
  const auto ended_as = [&](BatchState state) { return batch.state == state ? batch.ended_at : 0; };
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("id").string(batch.id);
  json.key("object").string("batch");
  json.key("endpoint").string(batch.endpoint);
  text_or_null(json, "model", batch.model);
  append_errors(json, batch);
  json.key("input_file_id").string(batch.input_file_id);
  json.key("completion_window").string(batch.completion_window);
  json.key("status").string(to_string(batch.state));
  // While it is finalized, the files have names and are not there.
  text_or_null(json, "output_file_id", batch.ended() ? batch.output_file_id : "");
  text_or_null(json, "error_file_id", batch.ended() ? batch.error_file_id : "");
  json.key("created_at").integer(batch.created_at);
  time_or_null(json, "in_progress_at", batch.in_progress_at);
  json.key("expires_at").integer(batch.expires_at);
  time_or_null(json, "finalizing_at", batch.finalizing_at);
  time_or_null(json, "completed_at", ended_as(BatchState::kCompleted));
  time_or_null(json, "failed_at", ended_as(BatchState::kFailed));
  time_or_null(json, "expired_at", ended_as(BatchState::kExpired));
  time_or_null(json, "cancelling_at", batch.cancelling_at);
  time_or_null(json, "cancelled_at", ended_as(BatchState::kCancelled));
  json.key("request_counts").begin_object();
  json.key("total").integer(batch.total);
  json.key("completed").integer(batch.completed);
  json.key("failed").integer(batch.failed);
  json.end_object();
  append_usage(json, batch);
  json.key("metadata");
  batch.metadata.empty() ? json.null() : json.raw(batch.metadata);
  json.end_object();
  return text;
}

}  // namespace pdjob::batch
