// How values of a config file are read and shown in errors: durations, quoted excerpts, the nearest
// known word. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace pdjob {

// "250ms", "5s", "10min", "2h": a whole number and its unit. Nothing else is a duration.
std::optional<Duration> parse_duration(std::string_view text);
// The same form, in the largest unit that loses nothing.
std::string format_duration(Duration duration);

// Without control characters, so that a file cannot write to the terminal; at most `bytes_max` of
// it.
std::string printable(std::string_view text, size_t bytes_max);
// The same in double quotes, short enough for an error's line.
std::string quote(std::string_view text);

// The word that was probably meant; empty if none is near.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known);

}  // namespace pdjob
