#include "router/async/async_body.h"

#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

void append_head(JsonWriter& json, std::string_view id, std::string_view status) {
  json.begin_object();
  json.key("id").string(id);
  json.key("object").string("pdjob.request");
  json.key("status").string(status);
}

void append_answer(JsonWriter& json, const AsyncAnswer& answer) {
  json.key("response").begin_object();
  json.key("status_code").integer(answer.status);
  if (openai::json_members(answer.body)) {
    json.key("body").raw(answer.body);
  } else {
    json.key("body").string(answer.body);
  }
  json.end_object();
}

void append_callback(JsonWriter& json, const AsyncCallback& callback) {
  json.key("callback").begin_object();
  json.key("url").string(callback.url);
  json.key("status").string(to_string(callback.status));
  json.key("attempts").integer(callback.attempts);
  json.end_object();
}

}  // namespace

std::string async_body(std::string_view id, const AsyncFound& found, std::string_view waits) {
  std::string body;
  JsonWriter json(body);
  const std::string_view ended =
      found.answer && found.answer->status == 200 ? "completed" : "failed";
  append_head(json, id, found.answer ? ended : waits);
  json.key("created_at").integer(found.created_at);
  if (found.callback) {
    append_callback(json, *found.callback);
  }
  if (found.answer) {
    append_answer(json, *found.answer);
  }
  json.end_object();
  return body;
}

std::string async_deleted_body(std::string_view id, bool was_alive) {
  std::string body;
  JsonWriter json(body);
  append_head(json, id, was_alive ? "cancelled" : "deleted");
  json.key("deleted").boolean(true).end_object();
  return body;
}

}  // namespace pdjob::router
