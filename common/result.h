// Result<T>: a value or an Error, for operations that can fail for reasons outside this process.
// Result<T, E>: the same with an error of another form, which has a `message` (openai::ApiError).
//
// Our own bugs are PDJOB_CHECK (check.h); a peer's refusal is a message. The methods have the names
// of std::expected, so that C++23 makes this file one alias. Value.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "common/check.h"

namespace pdjob {

// Each code is named after the reaction it asks for.
enum class ErrorCode {
  kInvalidArgument,  // The request is wrong: do not send it again.
  kNotFound,         // No such model, route or job.
  kOverloaded,       // A bound is reached: back off, then retry.
  kUnavailable,      // This worker cannot: try another.
  kTimeout,          // A deadline passed.
  kCancelled,        // The caller left.
  kCorrupt,          // Bytes are not what they claim: redo, and suspect the sender.
  kPeerFailed,       // The other worker of a hand-over failed, not this one.
  kUnsupported,      // Never possible here.
  kInternal,         // We failed, and the caller cannot act on it.
};

// The word used in logs, metrics and error bodies: "overloaded", "timeout", ...
const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // Adds the context of the layer above: "while opening job.yaml: ...".
  Error during(const std::string& what) const { return {code, "while " + what + ": " + message}; }
  friend bool operator==(const Error&, const Error&) = default;
};

// "open a.txt: No such file or directory", by errno.
Error system_error(const std::string& what, ErrorCode code = ErrorCode::kUnavailable);

template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(E error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    PDJOB_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    PDJOB_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    PDJOB_CHECK(has_value(), error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const E& error() const {
    PDJOB_CHECK(!has_value());
    return std::get<1>(state_);
  }

 private:
  std::string error_text() const { return has_value() ? "" : std::get<1>(state_).message; }

  std::variant<T, E> state_;
};

// An operation without a result, which only succeeds or fails.
struct Done {};
using Status = Result<Done>;
inline Done ok() { return {}; }  // Of any Result<Done, E>.

}  // namespace pdjob

#define PDJOB_CONCAT_INNER(a, b) a##b
#define PDJOB_CONCAT(a, b) PDJOB_CONCAT_INNER(a, b)

// PDJOB_TRY(auto file, open(path)); returns an error to the caller; on success it declares `file`.
#define PDJOB_TRY(declaration, ...) \
  PDJOB_TRY_INNER(PDJOB_CONCAT(pdjob_result_, __LINE__), declaration, __VA_ARGS__)
#define PDJOB_TRY_INNER(result, declaration, ...) \
  auto result = (__VA_ARGS__);                    \
  if (!result.has_value()) return result.error(); \
  declaration = std::move(result).value()

// PDJOB_TRY_STATUS(listen()); the same for a Status.
#define PDJOB_TRY_STATUS(...) \
  if (auto pdjob_status = (__VA_ARGS__); !pdjob_status.has_value()) return pdjob_status.error()
