#include "launcher/played/load_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "launcher/played/load_words.h"
#include "openai/json/json_edit.h"

namespace pdjob::simulation {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 20;
constexpr uint64_t kRowsMax = 50'000'000;  // Also of those that are skipped.

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  text = trimmed(text);
  Number value{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    return {};
  }
  return value;
}

// Of a number like 12 or 12.0. 0 stays.
std::optional<uint32_t> tokens_of(std::string_view text) {
  const auto value = number_of<double>(text);
  if (!value || !(*value >= 0 && *value <= kLoadTokensMax) || *value != std::floor(*value)) {
    return {};
  }
  return static_cast<uint32_t>(*value);
}

std::optional<Duration> time_of(std::string_view text, double unit_seconds) {
  constexpr double kLatest = 1e10;  // Seconds; Unix times are less.
  const auto value = number_of<double>(text);
  const double time = value.value_or(-1) * unit_seconds;
  if (!(time >= 0 && time < kLatest)) {
    return {};
  }
  return std::chrono::round<Duration>(std::chrono::duration<double>(time));
}

// "2023-11-16 18:15:46.6805900", with or without a zone, which is ignored: all rows have the same.
std::optional<Duration> date_of(std::string_view text) {
  text = trimmed(text);
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kForm.size()) {
    return {};
  }
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    const bool same = text[i] == kForm[i] || (kForm[i] == ' ' && text[i] == 'T');
    if (kForm[i] == 'd' ? !digit : !same) {
      return {};
    }
  }
  const auto part = [&](size_t at, size_t length) {
    return *number_of<int>(text.substr(at, length));
  };
  const std::chrono::year_month_day day{std::chrono::year(part(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(part(8, 2)))};
  const int hour = part(11, 2);
  const int minute = part(14, 2);
  const int second = part(17, 2);
  if (!day.ok() || part(0, 4) < 1970 || part(0, 4) > 2200 || hour > 23 || minute > 59 ||
      second > 60) {
    return {};
  }
  int64_t nanoseconds = 0;
  int64_t digit_is = 100'000'000;
  std::string_view rest = text.substr(kForm.size());
  if (rest.starts_with('.')) {
    for (rest.remove_prefix(1); !rest.empty() && rest[0] >= '0' && rest[0] <= '9';
         rest.remove_prefix(1)) {
      nanoseconds += (rest[0] - '0') * digit_is;
      digit_is /= 10;
    }
  }
  if (!rest.empty() && rest[0] != '+' && rest[0] != '-' && rest[0] != 'Z') {
    return {};
  }
  return std::chrono::sys_days(day).time_since_epoch() + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + Duration(nanoseconds);
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return fields;
}

// The ids of "[0, 1, 2]".
std::optional<std::vector<uint64_t>> ids_of(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with('[') || !text.ends_with(']')) {
    return {};
  }
  std::vector<uint64_t> ids;
  for (const std::string_view field : fields_of(text.substr(1, text.size() - 2))) {
    const auto id = number_of<int64_t>(field);
    if (!id) {
      return {};
    }
    ids.push_back(static_cast<uint64_t>(*id));
  }
  return ids;
}

// One format: reads a line. An empty text is no error; `request` stays empty for a row that is left
// out.
class Format {
 public:
  virtual ~Format() = default;
  virtual const char* name() const = 0;
  virtual std::string read(const std::string& line, uint64_t row,
                           std::optional<TraceRequest>& request) const = 0;
};

class Mooncake final : public Format {
 public:
  const char* name() const override { return "Mooncake"; }
  std::string read(const std::string& line, uint64_t /*row*/,
                   std::optional<TraceRequest>& request) const override {
    const auto members = openai::json_members(line);
    if (!members) {
      return "expected one JSON object: " + members.error().message;
    }
    std::optional<Duration> at;
    std::optional<uint32_t> prompt;
    std::optional<uint32_t> output;
    std::optional<std::vector<uint64_t>> ids;
    for (const auto& [key, value] : *members) {
      if (key == "timestamp") {
        at = time_of(value, 1e-3);
      } else if (key == "input_length") {
        prompt = tokens_of(value);
      } else if (key == "output_length") {
        output = tokens_of(value);
      } else if (key == "hash_ids") {
        ids = ids_of(value);
      }
    }
    const std::string wanted = " from 1 to " + std::to_string(kLoadTokensMax);
    if (!at) {
      return "timestamp must be milliseconds";
    }
    if (prompt.value_or(0) == 0 || output.value_or(0) == 0) {
      return std::string(prompt.value_or(0) == 0 ? "input_length" : "output_length") +
             " must be a number of tokens" + wanted;
    }
    constexpr uint32_t kBlock = kTraceBlockTokens;
    if (!ids || ids->size() != (*prompt + kBlock - 1) / kBlock) {
      return "hash_ids must have one id for each 512 tokens of input_length";
    }
    request = TraceRequest{
        .at = *at, .prompt_tokens = *prompt, .output_tokens = *output, .blocks = *std::move(ids)};
    return "";
  }
};

// A table with a heading.
class Table final : public Format {
 public:
  Table(const char* name, size_t time, size_t prompt, size_t output, bool dates)
      : name_(name), time_(time), prompt_(prompt), output_(output), dates_(dates) {}

  const char* name() const override { return name_; }
  std::string read(const std::string& line, uint64_t row,
                   std::optional<TraceRequest>& request) const override {
    const auto fields = fields_of(line);
    if (fields.size() <= std::max({time_, prompt_, output_})) {
      return "the line has fewer columns than the heading";
    }
    const auto at = dates_ ? date_of(fields[time_]) : time_of(fields[time_], 1);
    const auto prompt = tokens_of(fields[prompt_]);
    const auto output = tokens_of(fields[output_]);
    if (!at) {
      return dates_ ? "expected a time such as 2023-11-16 18:15:46.68" : "expected seconds";
    }
    if (!prompt || !output) {
      return "expected tokens from 0 to " + std::to_string(kLoadTokensMax);
    }
    if (*prompt > 0 && *output > 0) {
      request = TraceRequest{
          .at = *at, .prompt_tokens = *prompt, .output_tokens = *output, .blocks = {mix(row)}};
    }
    return "";
  }

 private:
  const char* const name_;
  const size_t time_, prompt_, output_;
  const bool dates_;
};

Result<std::unique_ptr<Format>> format_of(const std::string& line) {
  const auto fields = fields_of(line);
  const auto at = [&](std::string_view name) {
    const auto found = std::ranges::find(fields, name);
    return found == fields.end() ? SIZE_MAX : static_cast<size_t>(found - fields.begin());
  };
  if (line.find("\"resourceSpans\"") != line.npos) {
    return Error{ErrorCode::kUnsupported,
                 "spans of OpenTelemetry cannot be read yet: write a line of Mooncake's format for "
                 "each request"};
  }
  if (trimmed(line).starts_with('{')) {
    return std::unique_ptr<Format>(std::make_unique<Mooncake>());
  }
  if (at("ContextTokens") != SIZE_MAX && at("GeneratedTokens") != SIZE_MAX &&
      at("TIMESTAMP") != SIZE_MAX) {
    return std::unique_ptr<Format>(std::make_unique<Table>(
        "Azure", at("TIMESTAMP"), at("ContextTokens"), at("GeneratedTokens"), true));
  }
  if (at("Request tokens") != SIZE_MAX && at("Response tokens") != SIZE_MAX &&
      at("Timestamp") != SIZE_MAX) {
    return std::unique_ptr<Format>(std::make_unique<Table>(
        "BurstGPT", at("Timestamp"), at("Request tokens"), at("Response tokens"), false));
  }
  return Error{ErrorCode::kInvalidArgument,
               "the format is not known: expected Mooncake's JSON lines, or the heading of an "
               "Azure or BurstGPT table"};
}

// At most kLineBytesMax. Returns false at the end of the file; `too_long` is then possible, too.
bool next_line(std::ifstream& file, std::string& line, bool& too_long) {
  line.clear();
  std::streambuf& bytes = *file.rdbuf();
  for (int next = 0; (next = bytes.sbumpc()) != EOF && next != '\n';) {
    line.push_back(static_cast<char>(next));
    if (line.size() > kLineBytesMax) {
      too_long = true;
      return false;
    }
  }
  return !line.empty() || bytes.sgetc() != EOF;
}

}  // namespace

Result<LoadFile> read_load_file(const std::string& path, const LoadPart& part) {
  const auto error = [&](uint64_t line, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument,
                 path + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what};
  };
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    return error(0, failed ? failed.message() : "it is not a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return error(0, "it cannot be read");
  }
  LoadFile load;
  std::unique_ptr<Format> format;
  std::string line;
  bool too_long = false;
  uint64_t number = 0;
  uint64_t rows = 0;
  uint64_t tokens = 0;
  while (load.requests.size() < part.requests && next_line(file, line, too_long)) {
    ++number;
    if (trimmed(line).empty()) {
      continue;
    }
    if (!format) {
      auto found = format_of(line);
      if (!found) {
        return error(number, found.error().message);
      }
      format = *std::move(found);
      load.format = format->name();
      if (!trimmed(line).starts_with('{')) {
        continue;
      }
    }
    if (++rows > kRowsMax) {
      return error(number, "the file has more than " + std::to_string(kRowsMax) + " rows");
    }
    std::optional<TraceRequest> request;
    if (const std::string wrong = format->read(line, rows, request); !wrong.empty()) {
      return error(number, wrong);
    }
    if (!request) {
      load.left_out += rows > part.skip ? 1 : 0;
    } else if (rows > part.skip) {
      tokens += uint64_t{request->prompt_tokens} + request->output_tokens;
      load.requests.push_back(*std::move(request));
    }
    if (load.requests.size() > kLoadRequestsMax || tokens > kLoadTokensInAllMax) {
      return error(number, "more than " + std::to_string(kLoadRequestsMax) + " requests or " +
                               std::to_string(kLoadTokensInAllMax) +
                               " tokens: give --requests N for the first N");
    }
  }
  if (too_long) {
    return error(number + 1, "the line has more than " + std::to_string(kLineBytesMax) + " bytes");
  }
  if (load.requests.empty()) {
    return error(0, "it has no requests");
  }
  std::ranges::stable_sort(load.requests, {}, &TraceRequest::at);
  const Duration begin = load.requests.front().at;
  for (TraceRequest& request : load.requests) {
    request.at -= begin;
  }
  return load;
}

}  // namespace pdjob::simulation
