// Events of streams of vLLM and SGLang: what the router reads in them, and how an event of the
// worker that goes on becomes one of the stream that it continues. Keys are found without a parse:
// inside a JSON string each quote is escaped, so `"token_ids":` can only be a key. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pdjob::router {

// What an event says, as far as the record of a stream reads it. Holds views of the event.
struct EngineEvent {
  // Lists of token ids, with their brackets. Empty: none, or null.
  std::string_view tokens;
  std::string_view prompt_tokens;
  // The inside of the string that the event adds to an answer, the last one of several: text,
  // reasoning, or arguments of a tool.
  std::string_view added;
  uint32_t additions = 0;  // Such strings that are not empty.
  bool content = false;    // Some of it is text.
  bool reasoning = false;  // Or reasoning.
  bool begins = false;     // It names a role.
  bool calls = false;      // It calls tools, or adds to a call.
  bool names = false;      // It begins a call.
  bool ends = false;       // It has a finish reason.
  bool of_answer = false;  // It has a choice. One with the usage alone has none.
  bool logprobs = false;
  bool text_offsets = false;
};
// One pass. The event's first `skipped` bytes are known to say nothing.
EngineEvent read_event(std::string_view event, size_t skipped = 0);

// The raw value after the first `key`, which has its quotes and its colon: a list of numbers, a
// string, a number or a word. Empty: there is no such key, or its value is an object.
std::string_view value_in(std::string_view event, std::string_view key);
// The numbers between the brackets of such a list; empty optional: it is no list of numbers.
std::optional<std::string_view> numbers_in(std::string_view list);
uint64_t count_numbers(std::string_view numbers);
// Appends them behind those that are there, without spaces.
void append_numbers(std::string& out, std::string_view numbers);

// Appends the event with null in place of these two of its lists. Either may be empty.
void append_nulled(std::string& out, std::string_view event, std::string_view list,
                   std::string_view other);
// The event with the last `bytes` of what it adds, and with these tokens. Empty optional: it adds
// several strings, begins a call, or has logprobs.
std::optional<std::string> rest_of(std::string_view event, size_t bytes, std::string_view numbers);

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
