#include "openai/json/json_syntax_error.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

constexpr size_t kTextBytesMax =
    // This reader is ten times slower than simdjson and runs on the loop thread.
    limits::kMiB;
constexpr size_t kReasonBytesMax =
    // The reason quotes the last token, which may be the whole text.
    200;

// Keeps only the error.
class ErrorFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    reason_ = error.what();
    return false;
  }

  std::string reason() const {
    // "[json.exception.parse_error.101] parse error at ...": removes the tag, which means nothing
    // to a client.
    const size_t tag_end = reason_.find("] ");
    return reason_.substr(tag_end == std::string::npos ? 0 : tag_end + 2, kReasonBytesMax);
  }

 private:
  std::string reason_;
};

}  // namespace

std::string json_syntax_error(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return "";
  }
  ErrorFinder finder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &finder);
  return finder.reason();
}

}  // namespace pdjob::openai
