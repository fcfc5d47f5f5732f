#include "batch/stages/stage_line.h"

#include <algorithm>

#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kReasonMax = 4096;

void append_json(JsonWriter& json, std::string_view value) {
  // A line has no line break inside.
  std::string compact;
  openai::append_compact(compact, value);
  json.raw(compact);
}

bool is_object(std::string_view value) { return value.starts_with('{'); }

std::string text_of(std::string_view value) {
  return openai::json_string(value).value_or(std::string(value)).substr(0, kReasonMax);
}

StageReply failed(std::string reason) {
  return {.kind = StageReply::Kind::kFailed, .reason = std::move(reason)};
}

void append_notes(JsonWriter& json, const StageNotes& notes) {
  json.begin_object();
  for (const auto& [name, object] : notes) {
    json.key(name).raw(object);
  }
  json.end_object();
}

bool is_part_of_line(StageSide side, std::string_view name) {
  return name == "stages" || (side == StageSide::kBefore ? name == "method" : name == "request");
}

}  // namespace

std::string stage_line(StageSide side, const StageInput& input, const StageNotes& notes) {
  std::string line;
  line.reserve(input.body.size() + input.response.size() + 256);
  JsonWriter json(line);
  json.begin_object().key("custom_id").string(input.custom_id);
  if (side == StageSide::kBefore) {
    json.key("method").string("POST");
    json.key("url").string(input.url).key("body");
    append_json(json, input.body);
  } else {
    json.key("request").begin_object().key("url").string(input.url).key("body");
    append_json(json, input.body);
    json.end_object().key("response");
    append_json(json, input.response);
  }
  json.key("stages");
  append_notes(json, notes);
  json.end_object();
  return line;
}

std::string notes_object(const StageNotes& notes) {
  std::string text;
  if (!notes.empty()) {
    JsonWriter json(text);
    append_notes(json, notes);
  }
  return text;
}

Result<StageReply> read_stage_line(StageSide side, std::string line, std::string_view custom_id) {
  line.reserve(line.size() + openai::JsonObject::kSlack);
  if (!openai::is_valid_json(line)) {
    return Error{ErrorCode::kCorrupt, "it wrote a line that is not JSON"};
  }
  const auto members = openai::json_members(line);
  if (!members) {
    return Error{ErrorCode::kCorrupt, "it wrote a line that is not a JSON object"};
  }
  StageReply reply;
  std::string notes;
  JsonWriter json(notes);
  json.begin_object();
  bool noted = false;
  bool named = false;
  for (const openai::JsonMember& member : *members) {
    const std::string& name = member.name;
    if (name == "custom_id") {
      named = openai::json_string(member.value) == custom_id;
    } else if (name == "pdjob_drop" || name == "pdjob_error") {
      reply.kind = name == "pdjob_drop" ? StageReply::Kind::kDropped : StageReply::Kind::kFailed;
      reply.reason = text_of(member.value);
    } else if (side == StageSide::kBefore && name == "url") {
      reply.url = openai::json_string(member.value).value_or("");
    } else if (side == StageSide::kBefore && name == "body") {
      reply.body = member.value;
    } else if (side == StageSide::kAfter && name == "response") {
      reply.response = member.value;
    } else if (!is_part_of_line(side, name)) {
      json.key(name).raw(member.value);
      noted = true;
    }
  }
  json.end_object();
  if (!named) {
    return Error{ErrorCode::kCorrupt,
                 "it wrote a line without the custom_id of the row that is next in line"};
  }
  if (reply.kind != StageReply::Kind::kChanged) {
    return reply;
  }
  for (const auto& [name, value] :
       {std::pair("body", &reply.body), {"response", &reply.response}}) {
    if (!value->empty() && !is_object(*value)) {
      return failed(std::string("its ") + name + " is not a JSON object");
    }
  }
  if (noted) {
    reply.notes = std::move(notes);
  }
  return reply;
}

}  // namespace pdjob::batch
