#include "openai/json/json_syntax_error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/limits.h"
#include "common/parse_number.h"

namespace pdjob::openai {
namespace {

constexpr size_t kTextBytesMax =
    // This reader is ten times slower than simdjson and runs on the loop thread.
    limits::kMiB;
constexpr size_t kDigitsOf64Bits = 18;  // So many always fit.
constexpr size_t kReasonBytesMax =
    // The reason quotes the last token, which may be the whole text.
    200;

// Keeps only the error, and the place of a number that the other reader cannot hold.
class ErrorFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(number_integer_t /*value*/) override { return value(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return value(); }
  bool string(string_t& /*value*/) override { return value(); }
  bool binary(binary_t& /*value*/) override { return value(); }
  bool start_object(size_t /*elements*/) override { return open({}); }
  bool key(string_t& name) override {
    places_.back().key = name;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t /*elements*/) override { return open({.index = 0}); }
  bool end_array() override { return close(); }
  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      return too_large();
    }
    reason_ = error.what();
    return false;
  }

  std::string reason() const {
    // "[json.exception.parse_error.101] parse error at ...": removes the tag, which means nothing
    // to a client.
    const size_t tag_end = reason_.find("] ");
    return reason_.substr(tag_end == std::string::npos ? 0 : tag_end + 2, kReasonBytesMax);
  }
  const std::string& large_number() const { return large_number_; }

 private:
  // Inside one object or list.
  struct Location {
    std::string key = {};
    std::optional<size_t> index = {};  // In a list: the elements so far.
  };

  bool open(Location place) {
    places_.push_back(std::move(place));
    return places_.size() <= limits::kJsonDepthMax;
  }
  bool close() {
    places_.pop_back();
    return value();
  }
  bool value() {
    if (!places_.empty() && places_.back().index) {
      ++*places_.back().index;
    }
    return true;
  }
  bool too_large() {
    for (const Location& place : places_) {
      if (place.index) {
        large_number_ += '[' + std::to_string(*place.index) + ']';
      } else {
        large_number_ += (large_number_.empty() ? "" : ".") + place.key;
      }
    }
    return false;
  }

  std::string reason_;
  std::string large_number_;
  std::vector<Location> places_;
};

ErrorFinder find_error(std::string_view text) {
  ErrorFinder finder;
  if (text.size() <= kTextBytesMax) {
    nlohmann::json::sax_parse(text.begin(), text.end(), &finder);
  }
  return finder;
}

}  // namespace

std::string json_syntax_error(std::string_view text) { return find_error(text).reason(); }

std::string json_large_number(std::string_view text) { return find_error(text).large_number(); }

std::string with_points_in_large_integers(std::string_view text) {
  constexpr std::string_view kOfNumbers = "+-.0123456789eE";
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (in_string) {
      end += text[at] == '\\' && end < text.size() ? 1 : 0;
      in_string = text[at] != '"';
    } else if (kOfNumbers.find(text[at]) != std::string_view::npos) {
      end = std::min(text.find_first_not_of(kOfNumbers, at), text.size());
    } else {
      in_string = text[at] == '"';
    }
    const std::string_view token = text.substr(at, end - at);
    out += token;
    const bool whole = token.find_first_not_of("0123456789", token.starts_with('-') ? 1 : 0) ==
                       std::string_view::npos;
    if (whole && token.size() > kDigitsOf64Bits && !parse_number<int64_t>(token) &&
        !parse_number<uint64_t>(token)) {
      out += ".0";
    }
    at = end;
  }
  return out;
}

}  // namespace pdjob::openai
