#include "openai/replies/reply_text.h"

#include <algorithm>
#include <array>

#include <simdjson.h>

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kData = "data:";

bool is_set(const dom::element& object, const char* name) {
  dom::element value;
  return object[name].get(value) == simdjson::SUCCESS && !value.is_null();
}

// Only of the two likeliest: an engine may add the token that it took.
double margin_of(std::array<double, 2>& best, double logprob) {
  if (logprob > best[0]) {
    best = {logprob, best[0]};
  } else {
    best[1] = std::max(best[1], logprob);
  }
  return best[0] - best[1];
}

constexpr double kUnlikely = -1e9;

// Completions: lists side by side, and an object for each token's likeliest.
void read_lists(const dom::element& logprobs, ReplyText& said) {
  dom::array tokens;
  dom::array likeliest;
  if (logprobs["tokens"].get(tokens) != simdjson::SUCCESS ||
      logprobs["top_logprobs"].get(likeliest) != simdjson::SUCCESS) {
    return;
  }
  auto each = likeliest.begin();
  for (const dom::element token : tokens) {
    std::string_view text;
    dom::object named;
    if (each == likeliest.end() || token.get(text) != simdjson::SUCCESS ||
        (*each).get(named) != simdjson::SUCCESS || named.size() < 2) {
      return;
    }
    std::array<double, 2> best = {kUnlikely, kUnlikely};
    double margin = 0;
    for (const auto& [name, value] : named) {
      margin = margin_of(best, value.get_double().value_unsafe());
    }
    said.tokens.push_back({std::string(text), margin});
    ++each;
  }
}

// Chats: one object for each token.
void read_content(const dom::array& content, ReplyText& said) {
  for (const dom::element token : content) {
    std::string_view text;
    dom::array likeliest;
    if (token["token"].get(text) != simdjson::SUCCESS ||
        token["top_logprobs"].get(likeliest) != simdjson::SUCCESS || likeliest.size() < 2) {
      return;
    }
    std::array<double, 2> best = {kUnlikely, kUnlikely};
    double margin = 0;
    for (const dom::element one : likeliest) {
      double logprob = kUnlikely;
      if (one["logprob"].get(logprob) == simdjson::SUCCESS) {
        margin = margin_of(best, logprob);
      }
    }
    said.tokens.push_back({std::string(text), margin});
  }
}

// Returns false if there is more than text.
bool read_choice(const dom::element& choice, ReplyText& said) {
  int64_t index = 0;
  if (choice["index"].get(index) == simdjson::SUCCESS && index != 0) {
    return false;
  }
  dom::element message = choice;
  const bool of_chat = choice["message"].get(message) == simdjson::SUCCESS ||
                       choice["delta"].get(message) == simdjson::SUCCESS;
  for (const char* const more : {"reasoning", "reasoning_content", "function_call"}) {
    if (of_chat && is_set(message, more)) {
      return false;
    }
  }
  dom::array calls;
  if (of_chat && message["tool_calls"].get(calls) == simdjson::SUCCESS && calls.size() > 0) {
    return false;
  }
  std::string_view text;
  if (message[of_chat ? "content" : "text"].get(text) == simdjson::SUCCESS) {
    said.text.append(text);
  }
  dom::element logprobs;
  if (choice["logprobs"].get(logprobs) == simdjson::SUCCESS && logprobs.is_object()) {
    dom::array content;
    if (logprobs["content"].get(content) == simdjson::SUCCESS) {
      read_content(content, said);
    } else {
      read_lists(logprobs, said);
    }
  }
  return true;
}

bool read_reply(dom::parser& parser, std::string_view json, ReplyText& said) {
  dom::element reply;
  dom::array choices;
  if (parser.parse(json.data(), json.size()).get(reply) != simdjson::SUCCESS ||
      reply["choices"].get(choices) != simdjson::SUCCESS) {
    return false;
  }
  for (const dom::element choice : choices) {
    if (!read_choice(choice, said)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<ReplyText> text_of_reply(std::string_view content_type, const std::string& body) {
  ReplyText said;
  dom::parser parser;
  if (!content_type.starts_with("text/event-stream")) {
    return read_reply(parser, body, said) ? std::optional(std::move(said)) : std::nullopt;
  }
  bool ended = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find('\n', at), body.size());
    std::string_view line = std::string_view(body).substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(kData)) {
      continue;
    }
    line.remove_prefix(kData.size());
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    ended = line == "[DONE]";
    if (!ended && !read_reply(parser, line, said)) {
      return std::nullopt;
    }
  }
  return ended ? std::optional(std::move(said)) : std::nullopt;
}

}  // namespace pdjob::openai
