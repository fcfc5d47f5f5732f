// Texts with {words} that are filled in later, such as the command lines of recipes. A word is made
// of a-z and _; other braces belong to JSON. Pure.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob {

using Words = std::map<std::string, std::string, std::less<>>;
using WordNames = std::set<std::string, std::less<>>;

// Replaces the words that are known, and leaves all others.
std::string fill_words(std::string_view text, const Words& words);

// The name in a text that consists of one word, such as "port" of "{port}"; empty: it does not.
std::string_view only_word(std::string_view text);

// Reports an error at `key` for each word that is not known.
void check_words(ConfigReader& in, std::string_view key, std::string_view text,
                 const WordNames& known);
void check_words(ConfigReader& in, std::string_view key, const std::vector<std::string>& texts,
                 const WordNames& known);

}  // namespace pdjob
