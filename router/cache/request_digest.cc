#include "router/cache/request_digest.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/crypto/sha256.h"
#include "common/parse_number.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

using Members = std::vector<openai::JsonMember>;

// Each part follows its length, so two different lists of parts never make the same text.
void append_part(std::string& out, std::string_view part) {
  out.append(std::to_string(part.size())).append(":").append(part);
}

void append_members(std::string& out, const Members& members) {
  for (const openai::JsonMember& member : members) {
    append_part(out, member.name);
    std::string value;
    openai::append_compact(value, member.value);
    append_part(out, value);
  }
}

std::string_view value_of(const Members& members, std::string_view name) {
  const auto found = std::ranges::find(members, name, &openai::JsonMember::name);
  return found == members.end() ? std::string_view() : found->value;
}

// Returns false if a name occurs twice.
bool sort_by_name(Members& members) {
  std::ranges::sort(members, {}, &openai::JsonMember::name);
  return std::ranges::adjacent_find(members, {}, &openai::JsonMember::name) == members.end();
}

bool is_deterministic(const Members& members) {
  const auto temperature = parse_number<double>(value_of(members, "temperature"));
  const auto seed = parse_number<int64_t>(value_of(members, "seed"));
  return temperature == 0.0 || (seed && *seed != -1);  // -1 asks for a new seed each time.
}

struct Question {
  std::string text;
  std::string around;  // The rest of its member.
};

Question question_of_chat(std::string_view messages) {
  std::vector<std::string> items = openai::json_array_items(messages);
  if (items.empty()) {
    return {};
  }
  const std::string last = std::move(items.back());
  items.pop_back();
  auto members = openai::json_members(last);
  if (!members || !sort_by_name(*members) || value_of(*members, "role") != R"("user")") {
    return {};
  }
  Question question{.text = openai::json_string(value_of(*members, "content")).value_or("")};
  std::erase_if(*members,
                [](const openai::JsonMember& member) { return member.name == "content"; });
  for (const std::string& item : items) {
    std::string compact;
    openai::append_compact(compact, item);
    append_part(question.around, compact);
  }
  append_members(question.around, *members);
  return question;
}

}  // namespace

std::optional<RequestDigest> request_digest(std::string_view path, std::string_view authorization,
                                            const std::string& body) {
  auto members = openai::json_members(body);
  // White space between tokens can be recognized only in valid JSON.
  if (!members || !sort_by_name(*members) || !openai::is_valid_json(body)) {
    return std::nullopt;
  }
  std::string head;
  append_part(head, path);
  append_part(head, authorization);
  std::string whole = head;
  append_members(whole, *members);
  RequestDigest digest{.whole = sha256_of(whole), .deterministic = is_deterministic(*members)};
  const std::string_view messages = value_of(*members, "messages");
  Question question =
      messages.empty()
          ? Question{openai::json_string(value_of(*members, "prompt")).value_or(""), {}}
          : question_of_chat(messages);
  const std::string_view echo = value_of(*members, "echo");
  if (question.text.empty() || (!echo.empty() && echo != "false")) {
    return digest;
  }
  std::erase_if(*members, [&](const openai::JsonMember& member) {
    return member.name == (messages.empty() ? "prompt" : "messages");
  });
  append_part(head, question.around);
  append_members(head, *members);
  digest.question = std::move(question.text);
  digest.context = sha256_of(head);
  return digest;
}

}  // namespace pdjob::router
