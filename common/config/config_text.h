// Reads values of a config file and shows them in errors: durations, quoted excerpts, the nearest
// known word. Pure, but that paths are completed by the folder of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace pdjob {

// A duration is a whole number and its unit: "250ms", "5s", "10min", "2h".
std::optional<Duration> parse_duration(std::string_view text);
// The same form, in the largest unit that keeps the exact value.
std::string format_duration(Duration duration);

// A part of 1 with at most two decimals, "0.25" or "1", in hundredths; both ends are allowed.
std::optional<uint32_t> parse_portion(std::string_view text);
// The same form: "0.25", "0.5", "1".
std::string portion_text(uint64_t hundredths);

// "8GiB" as "8589934592". Any other text stays as it is.
std::string in_bytes(const std::string& written);

// The path for a process in another folder. One that begins with `~` stays: it depends on who reads
// it.
std::string absolute_path(const std::string& path);

// Replaces control characters, so that a file cannot send commands to the terminal. Cuts the text
// after `bytes_max` bytes.
std::string printable(std::string_view text, size_t bytes_max);
// The same in double quotes, short enough for one line of an error.
std::string quote(std::string_view text);

// The text as one YAML value, in quotes unless it is plainly text. Not for flow lists.
std::string yaml_text(std::string_view text);
// The same in double quotes, for every place of a document.
std::string double_quoted(std::string_view text);

// The known word most similar to `written`; empty if no word is similar enough.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known);

}  // namespace pdjob
