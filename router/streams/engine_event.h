// Events of streams of vLLM and SGLang: what the router reads in them, and how an event of the
// worker that goes on becomes one of the stream that it continues. Keys are found without a parse:
// inside a JSON string each quote is escaped, so `"token_ids":` can only be a key. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pdjob::router {

// The raw value after the first `key`, which has its quotes and its colon: a list of numbers, a
// string, a number or a word. Empty: there is no such key, or its value is an object.
std::string_view value_in(std::string_view event, std::string_view key);
// The numbers between the brackets of such a list; empty optional: it is no list of numbers.
std::optional<std::string_view> numbers_in(std::string_view list);
uint64_t count_numbers(std::string_view numbers);
// Appends them behind those that are there, without spaces.
void append_numbers(std::string& out, std::string_view numbers);

// The inside of the one string that an event adds to an answer: text, reasoning, or arguments of a
// tool. May be empty. Empty optional: it adds several, or begins a call.
std::optional<std::string_view> added_by(std::string_view event);
// The event with the last `bytes` of that string, and with these tokens. Empty optional: it has
// logprobs, or no such string.
std::optional<std::string> rest_of(std::string_view event, size_t bytes, std::string_view numbers);

// Appends the event with null in place of its lists of token ids, or of the prompt's alone.
enum class Ids : uint8_t { kAll, kOfPrompt };
void append_without(Ids ids, std::string_view event, std::string& out);

// The position in the text behind an event's logprobs; empty: it has none.
std::optional<uint64_t> text_offset_behind(std::string_view event);

// What an event of the new worker must say to be one of the old stream.
struct StreamFacts {
  std::string id;  // Raw values of the stream's first event.
  std::string created;
  std::string model;
  bool as_chat = false;        // The new worker's event is one of a completion.
  uint64_t tokens_before = 0;  // Part of the new worker's prompt, but not of the client's.
  uint64_t text_before = 0;    // Characters.
};
// Empty optional: the event is not as expected.
std::optional<std::string> continued_event(std::string_view event, const StreamFacts& how);

// The event with the usage, for a stream that has all others.
std::string usage_event(const StreamFacts& how, bool of_chat, uint64_t prompt_tokens,
                        uint64_t output_tokens);

}  // namespace pdjob::router
