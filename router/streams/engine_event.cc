#include "router/streams/engine_event.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kSpaces = " \t";

size_t skip_spaces(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpaces, at), text.size());
}

// The raw value that begins there, or a little later: up to the first bracket of a list that
// closes, and only the first byte of an object.
std::string_view value_at(std::string_view event, size_t at) {
  const size_t begin = skip_spaces(event, at);
  if (begin >= event.size()) {
    return {};
  }
  size_t end = event.size();
  switch (event[begin]) {
    case '[':
      end = event.find(']', begin);
      return end == std::string_view::npos ? std::string_view()
                                           : event.substr(begin, end + 1 - begin);
    case '"':
      return event.substr(begin, openai::end_of_json_string(event, begin) - begin);
    case '{':
      return event.substr(begin, 1);
    default:
      end = std::min(event.find_first_of(",}] \t", begin), event.size());
      return event.substr(begin, end - begin);
  }
}

size_t end_of(std::string_view value, std::string_view event) {
  return static_cast<size_t>(value.data() - event.data()) + value.size();
}

bool is_text(std::string_view value) { return value.size() > 2 && value.front() == '"'; }
bool is_list(std::string_view value) { return value.starts_with('['); }

void add(std::string_view value, bool& kind, EngineEvent& read) {
  if (is_text(value)) {
    kind = true;
    read.added = value.substr(1, value.size() - 2);
    read.additions += 1;
  }
}

void note(std::string_view key, std::string_view value, EngineEvent& read) {
  bool arguments = false;
  if (key == "token_ids") {
    read.tokens = is_list(value) ? value : std::string_view();
  } else if (key == "text" || key == "content") {
    add(value, read.content, read);
  } else if (key == "finish_reason") {
    read.ends = read.ends || is_text(value);
  } else if (key == "prompt_token_ids") {
    read.prompt_tokens = is_list(value) ? value : std::string_view();
  } else if (key == "choices") {
    read.of_answer = is_list(value) && value != "[]";
  } else if (key == "reasoning" || key == "reasoning_content") {
    add(value, read.reasoning, read);
  } else if (key == "role") {
    read.begins = true;
  } else if (key == "logprobs") {
    read.logprobs = value.starts_with('{');
  } else if (key == "text_offset") {
    read.text_offsets = true;
  } else if (key == "tool_calls") {
    read.calls = read.calls || value.starts_with("[{");
  } else if (key == "arguments") {
    add(value, arguments, read);
  } else if (key == "name") {
    read.names = is_text(value);
  }
}

// Raw.
std::string_view value_of(const std::vector<openai::JsonMember>& members, std::string_view name) {
  for (const openai::JsonMember& member : members) {
    if (member.name == name) {
      return member.value;
    }
  }
  return {};
}

std::string_view or_null(std::string_view value) { return value.empty() ? "null" : value; }

// A usage of the new worker, whose prompt has tokens of the old one.
std::optional<std::string> shifted_usage(std::string_view usage, uint64_t tokens) {
  const std::string text(usage);
  const auto members = openai::json_members(text);
  if (!members) {
    return std::nullopt;
  }
  const auto prompt = openai::json_integer(value_of(*members, "prompt_tokens"));
  const auto output = openai::json_integer(value_of(*members, "completion_tokens"));
  if (!prompt || !output || *prompt < static_cast<int64_t>(tokens)) {
    return std::nullopt;
  }
  const std::string prompt_text = std::to_string(*prompt - static_cast<int64_t>(tokens));
  const std::string output_text = std::to_string(*output + static_cast<int64_t>(tokens));
  const openai::JsonEdit edits[] = {{"prompt_tokens", prompt_text},
                                    {"completion_tokens", output_text}};
  auto edited = openai::edit_json_object(text, edits);
  return edited ? std::optional(std::move(*edited)) : std::nullopt;
}

// Adds to each number of the list "text_offset".
std::string with_text_shifted(std::string_view event, uint64_t characters) {
  std::string out(event);
  const std::string_view list = value_in(event, "\"text_offset\":");
  const auto numbers = numbers_in(list);
  if (characters == 0 || !numbers) {
    return out;
  }
  std::string shifted = "[";
  std::string_view rest = *numbers;
  while (!rest.empty()) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) {
      return out;  // Negative: the engine does not know it.
    }
    shifted.append(shifted.size() > 1 ? "," : "").append(std::to_string(number + characters));
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    rest.remove_prefix(std::min(rest.find_first_not_of(", "), rest.size()));
  }
  shifted.push_back(']');
  return out.replace(static_cast<size_t>(list.data() - event.data()), list.size(), shifted);
}

// The choice of a chat's event, made of that of a completion's.
std::optional<std::string> chat_choice(const std::string& choice) {
  const auto members = openai::json_members(choice);
  if (!members) {
    return std::nullopt;
  }
  const std::string_view text = value_of(*members, "text");
  if (!text.starts_with('"')) {
    return std::nullopt;
  }
  const std::string_view finish = or_null(value_of(*members, "finish_reason"));
  std::string out = R"({"index":0,"delta":{"content":)";
  out.append(text).append(R"(},"logprobs":null,"finish_reason":)").append(finish);
  if (finish != "null") {
    out.append(R"(,"stop_reason":)").append(or_null(value_of(*members, "stop_reason")));
  }
  return out.append(R"(,"token_ids":)")
      .append(or_null(value_of(*members, "token_ids")))
      .append("}");
}

std::optional<std::string> chat_choices(std::string_view choices) {
  std::string out = "[";
  for (const std::string& choice : openai::json_array_items(choices)) {
    const auto made = chat_choice(choice);
    if (!made) {
      return std::nullopt;
    }
    out.append(out.size() > 1 ? "," : "").append(*made);
  }
  return out.append("]");
}

void append_head(std::string& out, const StreamFacts& how) {
  out.append(R"({"id":)").append(how.id).append(R"(,"object":)");
}

}  // namespace

EngineEvent read_event(std::string_view event, size_t skipped) {
  EngineEvent read;
  for (size_t at = event.find('"', skipped); at != std::string_view::npos;) {
    const size_t end = openai::end_of_json_string(event, at);
    if (end >= event.size() || event[end] != ':') {
      at = event.find('"', end);
      continue;
    }
    const std::string_view value = value_at(event, end + 1);
    note(event.substr(at + 1, end - at - 2), value, read);
    // Values of other kinds have keys of their own.
    at = event.find('"', value.starts_with('"') ? end_of(value, event) : end + 1);
  }
  return read;
}

std::string_view value_in(std::string_view event, std::string_view key) {
  const size_t found = event.find(key);
  if (found == std::string_view::npos) {
    return {};
  }
  const std::string_view value = value_at(event, found + key.size());
  return value.starts_with('{') ? std::string_view() : value;
}

std::optional<std::string_view> numbers_in(std::string_view list) {
  if (list.size() < 2 || list.front() != '[' || list.back() != ']') {
    return std::nullopt;
  }
  const std::string_view inside = list.substr(1, list.size() - 2);
  const bool only_numbers = inside.find_first_not_of("0123456789, ") == std::string_view::npos;
  return only_numbers ? std::optional(inside) : std::nullopt;
}

uint64_t count_numbers(std::string_view numbers) {
  const bool any = numbers.find_first_not_of(kSpaces) != std::string_view::npos;
  return any ? static_cast<uint64_t>(std::ranges::count(numbers, ',')) + 1 : 0;
}

void append_numbers(std::string& out, std::string_view numbers) {
  if (!out.empty()) {
    out.push_back(',');
  }
  std::ranges::copy_if(numbers, std::back_inserter(out), [](char c) { return c != ' '; });
}

std::optional<std::string> rest_of(std::string_view event, size_t bytes, std::string_view numbers) {
  const EngineEvent read = read_event(event);
  if (read.additions > 1 || read.names || read.logprobs || read.tokens.empty() ||
      read.added.size() < bytes) {
    return std::nullopt;
  }
  // The list is behind the text.
  std::string rest(event);
  rest.replace(static_cast<size_t>(read.tokens.data() - event.data()), read.tokens.size(),
               "[" + std::string(numbers) + "]");
  if (!read.added.empty()) {
    rest.erase(static_cast<size_t>(read.added.data() - event.data()), read.added.size() - bytes);
  }
  return rest;
}

void append_nulled(std::string& out, std::string_view event, std::string_view list,
                   std::string_view other) {
  if (!list.empty() && !other.empty() && other.data() < list.data()) {
    std::swap(list, other);
  }
  size_t at = 0;
  for (const std::string_view each : {list, other}) {
    if (!each.empty()) {
      const auto begin = static_cast<size_t>(each.data() - event.data());
      out.append(event.substr(at, begin - at)).append("null");
      at = begin + each.size();
    }
  }
  out.append(event.substr(at));
}

std::optional<uint64_t> text_offset_behind(std::string_view event) {
  const auto offsets = numbers_in(value_in(event, "\"text_offset\":"));
  const size_t tokens = event.find("\"tokens\":");
  if (!offsets || offsets->empty() || tokens == std::string_view::npos) {
    return std::nullopt;
  }
  const size_t last_number = offsets->find_last_of(", ");
  const std::string_view number =
      last_number == std::string_view::npos ? *offsets : offsets->substr(last_number + 1);
  std::string last;
  for (size_t at = event.find('[', tokens) + 1; at < event.size();) {
    at = event.find_first_not_of(", ", at);
    if (at == std::string_view::npos || event[at] != '"') {
      break;
    }
    const size_t end = openai::end_of_json_string(event, at);
    last = openai::json_string(event.substr(at, end - at)).value_or("");
    at = end;
  }
  const auto characters = std::ranges::count_if(
      last, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
  return static_cast<uint64_t>(openai::json_integer(number).value_or(0)) +
         static_cast<uint64_t>(characters);
}

std::optional<std::string> continued_event(std::string_view event, const StreamFacts& how) {
  std::string text;
  const std::string shifted = with_text_shifted(event, how.text_before);
  append_nulled(text, shifted, read_event(shifted).prompt_tokens, {});
  const auto members = openai::json_members(text);
  if (!members) {
    return std::nullopt;
  }
  const std::string_view usage = value_of(*members, "usage");
  std::optional<std::string> own_usage;
  if (usage.starts_with('{')) {
    own_usage = shifted_usage(usage, how.tokens_before);
    if (!own_usage) {
      return std::nullopt;
    }
  }
  if (how.as_chat) {
    const auto choices = chat_choices(value_of(*members, "choices"));
    if (!choices) {
      return std::nullopt;
    }
    std::string out;
    append_head(out, how);
    out.append(R"("chat.completion.chunk","created":)").append(how.created);
    out.append(R"(,"model":)").append(how.model).append(R"(,"choices":)").append(*choices);
    if (own_usage) {
      out.append(R"(,"usage":)").append(*own_usage);
    }
    return out.append("}");
  }
  std::vector<openai::JsonEdit> edits = {{"id", how.id}, {"created", how.created}};
  if (own_usage) {
    edits.push_back({"usage", *own_usage});
  }
  auto edited = openai::edit_json_object(text, edits);
  return edited ? std::optional(std::move(*edited)) : std::nullopt;
}

std::string usage_event(const StreamFacts& how, bool of_chat, uint64_t prompt_tokens,
                        uint64_t output_tokens) {
  std::string out;
  append_head(out, how);
  out.append(of_chat ? R"("chat.completion.chunk")" : R"("text_completion")");
  out.append(R"(,"created":)").append(how.created).append(R"(,"model":)").append(how.model);
  out.append(R"(,"choices":[],"usage":{"prompt_tokens":)").append(std::to_string(prompt_tokens));
  out.append(R"(,"completion_tokens":)").append(std::to_string(output_tokens));
  out.append(R"(,"total_tokens":)").append(std::to_string(prompt_tokens + output_tokens));
  return out.append("}}");
}

}  // namespace pdjob::router
