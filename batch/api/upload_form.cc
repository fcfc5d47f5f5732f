#include "batch/api/upload_form.h"

#include <utility>

#include "common/parse_number.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kFieldBytesMax = 1024;
constexpr size_t kFilenameBytesMax = 255;

}  // namespace

UploadForm::UploadForm(const std::string& boundary, uint64_t file_bytes_max,
                       std::function<void(std::string_view)> take)
    : parser_(boundary), file_bytes_max_(file_bytes_max), take_(std::move(take)) {}

Result<Done, openai::ApiError> UploadForm::feed(std::string_view bytes) {
  if (const Status fed = parser_.feed(bytes, *this); !fed && outcome_) {
    outcome_ = openai::invalid_request(fed.error().message);
  }
  return outcome_;
}

Status UploadForm::refuse(openai::ApiError error) {
  outcome_ = std::move(error);
  return Error{ErrorCode::kInvalidArgument, outcome_.error().message};
}

Status UploadForm::on_part(const net::MultipartParser::Part& part) {
  field_ = part.name;
  text_.clear();
  in_file_ = part.name == "file";
  if (!in_file_) {
    return ok();
  }
  if (std::exchange(has_file_, true)) {
    return refuse(openai::invalid_request("Only one file can be uploaded at a time", "file"));
  }
  if (!part.is_file || part.filename.empty() || part.filename.size() > kFilenameBytesMax ||
      !openai::is_valid_utf8(part.filename)) {
    return refuse(openai::invalid_request("The file needs a filename of 1 to " +
                                              std::to_string(kFilenameBytesMax) + " bytes of UTF-8",
                                          "file"));
  }
  filename_ = part.filename;
  return ok();
}

Status UploadForm::on_bytes(std::string_view bytes) {
  if (!in_file_) {
    text_.append(bytes.substr(0, kFieldBytesMax + 1));
    return text_.size() <= kFieldBytesMax
               ? ok()
               : refuse(openai::invalid_request("The field is too long", field_.substr(0, 64)));
  }
  bytes_ += bytes.size();
  if (bytes_ > file_bytes_max_) {
    return refuse(openai::invalid_request(
        "The file is too large: at most " + std::to_string(file_bytes_max_) + " bytes are allowed",
        "file", "file_too_large", 413));
  }
  take_(bytes);
  return ok();
}

Status UploadForm::on_part_end() {
  if (field_ == "purpose") {
    purpose_ = text_;
  } else if (field_ == "expires_after[anchor]") {
    anchor_ = text_;
  } else if (field_ == "expires_after[seconds]") {
    seconds_ = text_;
  }
  return ok();
}

Result<Done, openai::ApiError> UploadForm::finish() {
  if (!parser_.done()) {
    return openai::invalid_request("the form is malformed: its closing boundary is missing");
  }
  if (!has_file_) {
    return openai::invalid_request("'file' is a required property", "file",
                                   "missing_required_parameter");
  }
  if (purpose_ != "batch") {
    return purpose_.empty()
               ? openai::invalid_request("'purpose' is a required property", "purpose",
                                         "missing_required_parameter")
               : openai::invalid_request("Only files with purpose 'batch' can be uploaded here",
                                         "purpose", "invalid_value");
  }
  if (anchor_.empty() && seconds_.empty()) {
    return ok();
  }
  lifetime_ = parse_number<int64_t>(seconds_);
  if (anchor_ != "created_at") {
    return openai::invalid_request("The only anchor is 'created_at'", "expires_after.anchor",
                                   "invalid_value");
  }
  if (!lifetime_ || *lifetime_ < kLifetimeMin || *lifetime_ > kLifetimeMax) {
    return openai::invalid_request("It must be " + std::to_string(kLifetimeMin) + " to " +
                                       std::to_string(kLifetimeMax) + " seconds",
                                   "expires_after.seconds", "invalid_value");
  }
  return ok();
}

}  // namespace pdjob::batch
