#include "common/config/words.h"

#include <cstddef>

namespace pdjob {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";

// Calls `found(begin, end)` for each {word} of the text.
void for_each_word(std::string_view text, const std::function<void(size_t, size_t)>& found) {
  for (size_t begin = text.find('{'); begin != std::string_view::npos;
       begin = text.find('{', begin + 1)) {
    const size_t end = text.find_first_not_of(kLetters, begin + 1);
    if (end != std::string_view::npos && end > begin + 1 && text[end] == '}') {
      found(begin, end + 1);
    }
  }
}

std::string list_of(const WordNames& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "{" : ", {") + name + "}";
  }
  return text;
}

}  // namespace

std::string fill_words(std::string_view text, const Words& words) {
  std::string filled;
  size_t copied = 0;
  for_each_word(text, [&](size_t begin, size_t end) {
    if (const auto word = words.find(text.substr(begin + 1, end - begin - 2));
        word != words.end()) {
      filled.append(text.substr(copied, begin - copied)).append(word->second);
      copied = end;
    }
  });
  return filled.append(text.substr(copied));
}

std::string_view only_word(std::string_view text) {
  const bool braced = text.size() > 2 && text.front() == '{' && text.back() == '}';
  const std::string_view name = braced ? text.substr(1, text.size() - 2) : std::string_view();
  return name.find_first_not_of(kLetters) == std::string_view::npos ? name : std::string_view();
}

void check_words(ConfigReader& in, std::string_view key, std::string_view text,
                 const WordNames& known) {
  for_each_word(text, [&](size_t begin, size_t end) {
    const std::string_view word = text.substr(begin + 1, end - begin - 2);
    if (!known.contains(word)) {
      in.fail(key, "{" + std::string(word) + "} means nothing here; known are " + list_of(known));
    }
  });
}

void check_words(ConfigReader& in, std::string_view key, const std::vector<std::string>& texts,
                 const WordNames& known) {
  for (const std::string& text : texts) {
    check_words(in, key, text, known);
  }
}

}  // namespace pdjob
