#include <utility>

#include "common/check.h"
#include "common/json/json_writer.h"
#include "openai/responses.h"

namespace pdjob::openai {
namespace {

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";
constexpr std::string_view kCancelled = "cancelled";

void end_event(std::string& out, JsonWriter& json) {
  json.end_object();
  out += "\n\n";
}

void append_list(JsonWriter& json, std::string_view name, std::string_view items) {
  json.key(name).begin_array();
  if (!items.empty()) {
    json.raw(items);
  }
  json.end_array();
}

void append_response_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object();
  json.key("input_tokens").integer(usage.prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens);
  json.key("cache_write_tokens").integer(0).end_object();
  json.key("output_tokens").integer(usage.completion_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(0).end_object();
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.end_object();
}

}  // namespace

ResponsesReplyWriter::ResponsesReplyWriter(ReplyOptions options, AppendPiece append_piece)
    : options_(std::move(options)), names_(std::move(append_piece), /*as_ids=*/false) {}

void ResponsesReplyWriter::append_part(std::string& out, const ReplyPart& part) {
  finish_ = part.finish;
  ends_in_calls_ = part.ends_in_calls;
  note_logprobs(part);
  // More of the open call comes before text that follows it.
  auto calls = part.calls;
  for (; !calls.empty() && calls.front().id.empty(); calls = calls.subspan(1)) {
    append_call(out, calls.front());
  }
  if (!part.text.empty()) {
    append_text(out, part.text);
  }
  for (const ToolCallPart& call : calls) {
    append_call(out, call);
  }
}

void ResponsesReplyWriter::append_end(std::string& out, const Usage& usage) {
  begin(out);
  if (items_.empty()) {
    open_item(out, nullptr);
  }
  close_item(out, status_of(items_.back()));
  append_response_event(out, status() == kCompleted ? "response.completed" : "response.incomplete",
                        {.status = status(), .usage = &usage});
}

void ResponsesReplyWriter::append_error(std::string& out, const ApiError& error) {
  begin(out);
  append_response_event(out, "response.failed", {.status = "failed", .error = &error});
}

void ResponsesReplyWriter::append_whole(std::string& out, std::span<const ReplyPart> parts,
                                        const Usage& usage, std::string_view kv_transfer_params) {
  PDJOB_CHECK(parts.size() == 1, parts.size());
  const ReplyPart& part = parts.front();
  finish_ = part.finish;
  ends_in_calls_ = part.ends_in_calls;
  note_logprobs(part);
  if (!part.text.empty() || part.calls.empty()) {
    Item& message = add_item(nullptr);
    message.text = part.text;
    message.logprobs = std::exchange(logprobs_, {});
  }
  for (const ToolCallPart& call : part.calls) {
    add_item(&call).text = call.arguments;
  }
  JsonWriter json(out);
  json.begin_object();
  append_response(json, {.status = status(), .usage = &usage});
  if (!kv_transfer_params.empty()) {
    json.key("kv_transfer_params").raw(kv_transfer_params);
  }
  json.end_object();
}

void ResponsesReplyWriter::append_text(std::string& out, std::string_view text) {
  const bool goes_on = open_ && !items_.back().is_call;
  Item& message = goes_on ? items_.back() : open_item(out, nullptr);
  message.text += text;
  JsonWriter json = begin_item_event(out, "response.output_text.delta");
  json.key("content_index").integer(0).key("delta").string(text);
  append_list(json, "logprobs", logprobs_);
  end_event(out, json);
  logprobs_.clear();
}

void ResponsesReplyWriter::append_call(std::string& out, const ToolCallPart& call) {
  logprobs_.clear();  // Items of calls have none.
  Item& item = call.id.empty() ? items_.back() : open_item(out, &call);
  if (call.arguments.empty()) {
    return;
  }
  item.text += call.arguments;
  JsonWriter json = begin_item_event(out, "response.function_call_arguments.delta");
  json.key("delta").string(call.arguments);
  end_event(out, json);
}

void ResponsesReplyWriter::note_logprobs(const ReplyPart& part) {
  if (!options_.logprobs) {
    return;
  }
  for (const GeneratedToken& token : part.tokens) {
    logprobs_ += logprobs_.empty() ? "" : ",";
    JsonWriter json(logprobs_);
    names_.append_logprobs(json, token, token.top);
  }
}

ResponsesReplyWriter::Item& ResponsesReplyWriter::add_item(const ToolCallPart* call) {
  const std::string index = std::to_string(items_.size());
  Item& item = items_.emplace_back();
  item.is_call = call != nullptr;
  item.id = (item.is_call ? "fc_" : "msg_") + options_.id + "_" + index;
  if (item.is_call) {
    item.call_id = call->id;
    item.name = call->name;
  }
  return item;
}

ResponsesReplyWriter::Item& ResponsesReplyWriter::open_item(std::string& out,
                                                            const ToolCallPart* call) {
  begin(out);
  close_item(out, kCompleted);
  Item& item = add_item(call);
  open_ = true;
  append_item_event(out, "response.output_item.added", kInProgress);
  if (!item.is_call) {
    JsonWriter json = begin_item_event(out, "response.content_part.added");
    json.key("content_index").integer(0).key("part");
    append_text_part(json, item);
    end_event(out, json);
  }
  return item;
}

void ResponsesReplyWriter::close_item(std::string& out, std::string_view status) {
  if (!std::exchange(open_, false)) {
    return;
  }
  const Item& item = items_.back();
  if (item.is_call) {
    JsonWriter json = begin_item_event(out, "response.function_call_arguments.done");
    json.key("name").string(item.name).key("arguments").string(item.text);
    end_event(out, json);
  } else {
    JsonWriter text = begin_item_event(out, "response.output_text.done");
    text.key("content_index").integer(0).key("text").string(item.text);
    append_list(text, "logprobs", item.logprobs);
    end_event(out, text);
    JsonWriter part = begin_item_event(out, "response.content_part.done");
    part.key("content_index").integer(0).key("part");
    append_text_part(part, item);
    end_event(out, part);
  }
  append_item_event(out, "response.output_item.done", status);
}

void ResponsesReplyWriter::begin(std::string& out) {
  if (sequence_ == 0) {
    append_response_event(out, "response.created", {.status = kInProgress});
    append_response_event(out, "response.in_progress", {.status = kInProgress});
  }
}

void ResponsesReplyWriter::append_response_event(std::string& out, std::string_view type,
                                                 const Ending& ending) {
  JsonWriter json = begin_event(out, type);
  json.key("response").begin_object();
  append_response(json, ending);
  json.end_object();
  end_event(out, json);
}

JsonWriter ResponsesReplyWriter::begin_event(std::string& out, std::string_view type) {
  out.append("event: ").append(type).append("\ndata: ");
  JsonWriter json(out);
  json.begin_object().key("type").string(type);
  json.key("sequence_number").integer(sequence_++);
  return json;
}

JsonWriter ResponsesReplyWriter::begin_item_event(std::string& out, std::string_view type) {
  JsonWriter json = begin_event(out, type);
  json.key("item_id").string(items_.back().id);
  json.key("output_index").integer(items_.size() - 1);
  return json;
}

void ResponsesReplyWriter::append_item_event(std::string& out, std::string_view type,
                                             std::string_view status) {
  JsonWriter json = begin_event(out, type);
  json.key("output_index").integer(items_.size() - 1).key("item");
  append_item(json, items_.back(), status);
  end_event(out, json);
}

std::string_view ResponsesReplyWriter::status() const {
  switch (finish_) {
    case FinishReason::kLength:
      return kIncomplete;
    case FinishReason::kAbort:
      return kCancelled;
    default:
      return kCompleted;
  }
}

// Only the last item can be cut.
std::string_view ResponsesReplyWriter::status_of(const Item& item) const {
  const bool is_last = &item == &items_.back();
  const bool is_cut = item.is_call ? !ends_in_calls_ : status() != kCompleted;
  return is_last && is_cut && finish_ != FinishReason::kNone ? kIncomplete : kCompleted;
}

void ResponsesReplyWriter::append_response(JsonWriter& json, const Ending& ending) const {
  json.key("id").string("resp_" + options_.id).key("object").string("response");
  json.key("created_at").integer(options_.created).key("status").string(ending.status);
  json.key("completed_at");
  ending.status == kCompleted ? json.integer(ending.usage->ended) : json.null();
  json.key("error");
  if (ending.error != nullptr) {
    json.begin_object().key("code").string("server_error");
    json.key("message").string(ending.error->message).end_object();
  } else {
    json.null();
  }
  json.key("incomplete_details");
  if (ending.status == kIncomplete) {
    json.begin_object().key("reason").string("max_output_tokens").end_object();
  } else {
    json.null();
  }
  json.key("model").string(options_.model);
  json.key("output").begin_array();
  for (const Item& item : items_) {
    append_item(json, item, ending.error != nullptr ? kIncomplete : status_of(item));
  }
  json.end_array();
  json.key("usage");
  if (ending.usage != nullptr) {
    append_response_usage(json, *ending.usage);
  } else {
    json.null();
  }
  json.raw(options_.response_settings);
}

void ResponsesReplyWriter::append_item(JsonWriter& json, const Item& item,
                                       std::string_view status) {
  json.begin_object().key("id").string(item.id);
  json.key("type").string(item.is_call ? "function_call" : "message");
  json.key("status").string(status);
  if (item.is_call) {
    // A call that opens has no arguments yet.
    json.key("call_id").string(item.call_id).key("name").string(item.name);
    json.key("arguments").string(item.text).end_object();
    return;
  }
  json.key("role").string("assistant").key("content").begin_array();
  if (status != kInProgress) {
    append_text_part(json, item);
  }
  json.end_array().end_object();
}

void ResponsesReplyWriter::append_text_part(JsonWriter& json, const Item& item) {
  json.begin_object().key("type").string("output_text").key("text").string(item.text);
  append_list(json, "annotations", {});
  append_list(json, "logprobs", item.logprobs);
  json.end_object();
}

}  // namespace pdjob::openai
