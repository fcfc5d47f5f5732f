// MultipartParser: a multipart/form-data body (RFC 7578) as it arrives, in bounded memory. It is
// strict: no preamble, no nested parts, no transfer encodings, a boundary of RFC 2046. Value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::net {

// The boundary that a Content-Type names. kInvalidArgument: it is no form, or its boundary is
// wrong.
Result<std::string> boundary_of(std::string_view content_type);

// The value of the first field `name` of a whole form; empty optional: it has none. A value may
// have at most kFormFieldBytesMax bytes. kInvalidArgument: up to that field, the form is malformed.
inline constexpr size_t kFormFieldBytesMax = 1024;
Result<std::optional<std::string>> form_field(std::string_view content_type, std::string_view body,
                                              std::string_view name);

class MultipartParser {
 public:
  static constexpr size_t kPartsMax = 64;
  static constexpr size_t kPartHeadBytesMax = 4096;

  struct Part {
    std::string name;
    std::string filename;  // Any bytes without control characters.
    bool is_file = false;  // It has a filename, which may be empty.
  };
  // feed() passes on its result.
  class Handler {
   public:
    virtual Status on_part(const Part& part) = 0;
    virtual Status on_bytes(std::string_view bytes) = 0;
    virtual Status on_part_end() = 0;

   protected:
    ~Handler() = default;
  };

  explicit MultipartParser(const std::string& boundary) : delimiter_("\r\n--" + boundary) {}

  // kInvalidArgument: the body is malformed. After an error, nothing more may be fed.
  Status feed(std::string_view bytes, Handler& handler);
  // The closing boundary has come.
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State {
    kDelimiter,  // At the body's begin: a boundary must come.
    kBehind,     // Behind a boundary: CRLF or "--".
    kHead,       // In the head of a part.
    kBody,
    kDone,  // What follows is ignored (RFC 2046, 5.1.1).
  };
  // Each takes bytes of `held_` from `at_`. Returns false if more are needed.
  Result<bool> step(Handler& handler);
  Result<bool> take_delimiter();
  Result<bool> take_behind();
  Result<bool> take_head(Handler& handler);
  Result<bool> take_body(Handler& handler);

  const std::string delimiter_;
  State state_ = State::kDelimiter;
  std::string held_;  // Not yet taken; shorter than a head, or than a delimiter, between calls.
  size_t at_ = 0;
  size_t parts_ = 0;
};

}  // namespace pdjob::net
