#include "net/http/multipart_parser.h"

#include <algorithm>
#include <optional>

#include "net/http/http_parser.h"

namespace pdjob::net {
namespace {

constexpr size_t kBoundaryBytesMax = 70;  // RFC 2046, 5.1.1.
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

Error malformed(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "the form is malformed: " + what};
}

bool is_boundary_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// One `; name=value` at the front of `text`, which is moved behind it. The value may be quoted; a
// backslash escapes only quotes and itself, because old browsers send paths with backslashes.
struct Parameter {
  std::string_view name;
  std::string value;
};
std::optional<Parameter> take_parameter(std::string_view& text) {
  text = trimmed(text);
  const size_t equals = text.find('=');
  if (!text.starts_with(';') || equals == std::string_view::npos) {
    return std::nullopt;
  }
  Parameter parameter{.name = trimmed(text.substr(1, equals - 1)), .value = {}};
  text = trimmed(text.substr(equals + 1));
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(';'), text.size());
    parameter.value = trimmed(text.substr(0, end));
    text.remove_prefix(end);
    return parameter.value.empty() ? std::nullopt : std::optional(parameter);
  }
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '"') {
      text.remove_prefix(at + 1);
      return parameter;
    }
    const bool escapes =
        text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\');
    parameter.value.push_back(text[escapes ? ++at : at]);
  }
  return std::nullopt;  // The quotes do not end.
}

// The parameters of `value` behind its first word.
Result<MultipartParser::Part> part_of_disposition(std::string_view value) {
  const size_t word_end = std::min(value.find(';'), value.size());
  if (!equal_ignoring_case(trimmed(value.substr(0, word_end)), "form-data")) {
    return malformed("a part is not form-data");
  }
  std::string_view rest = value.substr(word_end);
  MultipartParser::Part part;
  bool named = false;
  while (!trimmed(rest).empty()) {
    auto parameter = take_parameter(rest);
    if (!parameter) {
      return malformed("a Content-Disposition that cannot be read");
    }
    const bool is_name = equal_ignoring_case(parameter->name, "name");
    const bool is_filename = equal_ignoring_case(parameter->name, "filename");
    if ((is_name && named) || (is_filename && part.is_file)) {
      return malformed("a name is given twice");
    }
    if (is_name) {
      named = true;
      part.name = std::move(parameter->value);
    } else if (is_filename) {
      part.is_file = true;
      part.filename = std::move(parameter->value);
    }  // filename* and others: the plain form stands beside it.
  }
  return named && !part.name.empty()
             ? Result(std::move(part))
             : Result<MultipartParser::Part>(malformed("a part lacks a name"));
}

// `head`: lines with their ends.
Result<MultipartParser::Part> part_of_head(std::string_view head) {
  std::optional<MultipartParser::Part> part;
  while (!head.empty()) {
    const size_t end = head.find(kLineEnd);
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + kLineEnd.size());
    const size_t colon = line.find(':');
    const bool clean =
        std::ranges::none_of(line, [](char c) { return is_control(c) && c != '\t'; });
    if (colon == std::string_view::npos || colon == 0 || !clean) {
      return malformed("the head of a part has a line that is no header");
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (equal_ignoring_case(name, "content-disposition")) {
      if (part) {
        return malformed("a part has two Content-Dispositions");
      }
      PDJOB_TRY(part, part_of_disposition(value));
    } else if (equal_ignoring_case(name, "content-transfer-encoding") &&
               !equal_ignoring_case(value, "binary") && !equal_ignoring_case(value, "8bit") &&
               !equal_ignoring_case(value, "7bit")) {
      return malformed("a part has a transfer encoding");
    }
  }
  return part ? Result(*std::move(part))
              : Result<MultipartParser::Part>(malformed("a part lacks its Content-Disposition"));
}

// Keeps the value of one field.
class FieldReader final : public MultipartParser::Handler {
 public:
  explicit FieldReader(std::string_view name) : name_(name) {}

  const std::optional<std::string>& found() const { return found_; }

  Status on_part(const MultipartParser::Part& part) override {
    reads_ = !found_ && !part.is_file && part.name == name_;
    return ok();
  }
  Status on_bytes(std::string_view bytes) override {
    if (!reads_) {
      return ok();
    }
    value_ += bytes;
    return value_.size() <= kFormFieldBytesMax
               ? ok()
               : Status(malformed("its field " + std::string(name_) + " is too long"));
  }
  Status on_part_end() override {
    if (reads_) {
      found_ = std::move(value_);
      reads_ = false;
    }
    return ok();
  }

 private:
  const std::string_view name_;
  bool reads_ = false;
  std::string value_;
  std::optional<std::string> found_;
};

}  // namespace

Result<std::string> boundary_of(std::string_view content_type) {
  const size_t word_end = std::min(content_type.find(';'), content_type.size());
  if (!equal_ignoring_case(trimmed(content_type.substr(0, word_end)), "multipart/form-data")) {
    return Error{ErrorCode::kInvalidArgument, "the request must be multipart/form-data"};
  }
  std::string_view rest = content_type.substr(word_end);
  std::string boundary;
  while (!trimmed(rest).empty()) {
    const auto parameter = take_parameter(rest);
    if (!parameter) {
      return malformed("its Content-Type cannot be read");
    }
    if (equal_ignoring_case(parameter->name, "boundary")) {
      if (!boundary.empty()) {
        return malformed("it has two boundaries");
      }
      boundary = parameter->value;
    }
  }
  if (boundary.empty() || boundary.size() > kBoundaryBytesMax || boundary.ends_with(' ') ||
      !std::ranges::all_of(boundary, is_boundary_char)) {
    return malformed("its boundary is missing or wrong");
  }
  return boundary;
}

// In pieces, because the field may stand before a long file.
Result<std::optional<std::string>> form_field(std::string_view content_type, std::string_view body,
                                              std::string_view name) {
  constexpr size_t kPieceBytes = size_t{64} * 1024;
  PDJOB_TRY(const std::string boundary, boundary_of(content_type));
  MultipartParser parser(boundary);
  FieldReader reader(name);
  while (!body.empty() && !reader.found()) {
    const std::string_view piece = body.substr(0, kPieceBytes);
    body.remove_prefix(piece.size());
    PDJOB_TRY_STATUS(parser.feed(piece, reader));
  }
  if (!reader.found() && !parser.done()) {
    return malformed("it lacks its end");
  }
  return reader.found();
}

Status MultipartParser::feed(std::string_view bytes, Handler& handler) {
  held_.append(bytes);
  while (state_ != State::kDone) {
    PDJOB_TRY(const bool moved, step(handler));
    if (!moved) {
      break;
    }
  }
  held_.erase(0, state_ == State::kDone ? held_.size() : at_);
  at_ = 0;
  return ok();
}

Result<bool> MultipartParser::step(Handler& handler) {
  switch (state_) {
    case State::kDelimiter:
      return take_delimiter();
    case State::kBehind:
      return take_behind();
    case State::kHead:
      return take_head(handler);
    case State::kBody:
      return take_body(handler);
    case State::kDone:
      break;
  }
  return false;
}

// The first boundary has no line end before it.
Result<bool> MultipartParser::take_delimiter() {
  const std::string_view first = std::string_view(delimiter_).substr(kLineEnd.size());
  const std::string_view here = std::string_view(held_).substr(at_);
  if (!first.starts_with(here.substr(0, first.size()))) {
    return malformed("it does not begin with its boundary");
  }
  if (here.size() < first.size()) {
    return false;
  }
  at_ += first.size();
  state_ = State::kBehind;
  return true;
}

Result<bool> MultipartParser::take_behind() {
  const std::string_view here = std::string_view(held_).substr(at_, 2);
  if (here.size() < 2) {
    return false;
  }
  if (here == "--") {
    state_ = State::kDone;
  } else if (here == kLineEnd) {
    if (++parts_ > kPartsMax) {
      return malformed("it has more than " + std::to_string(kPartsMax) + " parts");
    }
    state_ = State::kHead;
  } else {
    return malformed("bytes stand behind a boundary");
  }
  at_ += 2;
  return true;
}

Result<bool> MultipartParser::take_head(Handler& handler) {
  const std::string_view here = std::string_view(held_).substr(at_);
  const size_t end = here.substr(0, kPartHeadBytesMax).find(kHeadEnd);
  if (end == std::string_view::npos) {
    return here.size() < kPartHeadBytesMax
               ? Result(false)
               : Result<bool>(malformed("the head of a part is too long"));
  }
  PDJOB_TRY(const Part part, part_of_head(here.substr(0, end + kLineEnd.size())));
  at_ += end + kHeadEnd.size();
  state_ = State::kBody;
  PDJOB_TRY_STATUS(handler.on_part(part));
  return true;
}

// The last bytes may be the begin of a delimiter, so they wait.
Result<bool> MultipartParser::take_body(Handler& handler) {
  const std::string_view here = std::string_view(held_).substr(at_);
  const size_t end = here.find(delimiter_);
  const bool found = end != std::string_view::npos;
  const size_t waits = delimiter_.size() - 1;
  const size_t count = found ? end : here.size() - std::min(waits, here.size());
  if (count > 0) {
    PDJOB_TRY_STATUS(handler.on_bytes(here.substr(0, count)));
  }
  at_ += count;
  if (!found) {
    return false;
  }
  PDJOB_TRY_STATUS(handler.on_part_end());
  at_ += delimiter_.size();
  state_ = State::kBehind;
  return true;
}

}  // namespace pdjob::net
