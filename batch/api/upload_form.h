// UploadForm: the form of POST /v1/files, as it arrives: which file is uploaded, for what, and for
// how long. It passes the file's bytes on and keeps none. Value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "net/http/multipart_parser.h"
#include "openai/openai.h"

namespace pdjob::batch {

// Limits of OpenAI for the lifetime that a client may choose; seconds.
inline constexpr int64_t kLifetimeMin = 3600;
inline constexpr int64_t kLifetimeMax = 2'592'000;

class UploadForm final : net::MultipartParser::Handler {
 public:
  // `take` gets the file's bytes, piece by piece.
  UploadForm(const std::string& boundary, uint64_t file_bytes_max,
             std::function<void(std::string_view)> take);
  UploadForm(const UploadForm&) = delete;
  UploadForm& operator=(const UploadForm&) = delete;

  // An error: the form is wrong, and nothing more may be fed.
  Result<Done, openai::ApiError> feed(std::string_view bytes);
  // After the last byte.
  Result<Done, openai::ApiError> finish();

  const std::string& filename() const { return filename_; }
  const std::string& purpose() const { return purpose_; }
  uint64_t bytes() const { return bytes_; }
  std::optional<int64_t> lifetime() const { return lifetime_; }  // Empty: not given.

 private:
  Status on_part(const net::MultipartParser::Part& part) override;
  Status on_bytes(std::string_view bytes) override;
  Status on_part_end() override;
  Status refuse(openai::ApiError error);

  net::MultipartParser parser_;
  const uint64_t file_bytes_max_;
  const std::function<void(std::string_view)> take_;
  Result<Done, openai::ApiError> outcome_ = ok();
  std::string field_;  // The part's name.
  bool in_file_ = false;
  std::string text_;  // Of a part that is no file.
  bool has_file_ = false;
  std::string filename_;
  std::string purpose_;
  std::string anchor_;
  std::string seconds_;
  std::optional<int64_t> lifetime_;
  uint64_t bytes_ = 0;
};

}  // namespace pdjob::batch
