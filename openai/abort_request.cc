#include "openai/abort_request.h"

#include <algorithm>

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {
namespace {

void read_names(const Fields& fields, const char* name, AbortRequest& request) {
  const auto value = fields.find(name);
  std::string text;
  if (value && value->is_string()) {
    fields.text(name, text);
    request.names.insert(text);
  } else if (const auto list = fields.list(name, limits::kAbortNamesMax)) {
    size_t index = 0;
    for (const simdjson::dom::element element : *list) {
      read_text(fields.reading(), element_name(name, index++), element, text);
      request.names.insert(text);
    }
  }
  request.names.erase("");
}

}  // namespace

bool AbortRequest::means(std::string_view rid) const {
  if (means_exactly(rid)) {
    return true;
  }
  const size_t number = rid.rfind('_');
  return number != std::string_view::npos && number + 1 < rid.size() &&
         std::ranges::all_of(rid.substr(number + 1), [](char c) { return c >= '0' && c <= '9'; }) &&
         names.contains(rid.substr(0, number));
}

AbortRequest AbortRequest::part_of(std::string_view leg) const {
  if (leg.empty()) {
    return {.all = all};
  }
  AbortRequest part{.all = means_exactly(leg)};
  const std::string prompts = std::string(leg) + '/';
  for (auto name = names.lower_bound(prompts); name != names.end() && name->starts_with(prompts);
       ++name) {
    part.names.insert(*name);
  }
  return part;
}

std::string leg_prompt(std::string_view leg, size_t prompt) {
  return std::string(leg) + '/' + std::to_string(prompt);
}

Result<AbortRequest, ApiError> parse_abort(AbortForm form, std::string_view body) {
  const bool sglang = form == AbortForm::kSglang;
  AbortRequest request;
  PDJOB_TRY_STATUS(read_object(!sglang && body.empty() ? "{}" : body, [&](const Fields& fields) {
    if (sglang) {
      fields.boolean("abort_all", request.all);
    } else {
      request.all = !fields.find("request_ids");
    }
    read_names(fields, sglang ? "rid" : "request_ids", request);
  }));
  return request;
}

std::string abort_request_body(const AbortRequest& request) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("rid").begin_array();
  for (const std::string& name : request.names) {
    json.string(name);
  }
  json.end_array().key("abort_all").boolean(request.all).end_object();
  return body;
}

std::string abort_answer(AbortForm form, size_t count) {
  return form == AbortForm::kSglang
             ? std::string()
             : R"({"status":"aborted","aborted":)" + std::to_string(count) + "}";
}

}  // namespace pdjob::openai
