// WebhookSecret signs callbacks as Standard Webhooks requires (version 1: HMAC-SHA256), so that a
// receiver can verify the caller. The secret is never logged or shown. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::router {

class WebhookSecret {
 public:
  // `text`: "whsec_" and 24 to 64 bytes in base64. An error repeats none of it.
  static Result<WebhookSecret> parse(std::string_view text);
  // Reads the secret from a file, without the end of its line.
  static Result<WebhookSecret> read(const std::string& file);

  // Returns the value of webhook-signature.
  std::string sign(std::string_view id, int64_t timestamp, std::string_view body) const;

 private:
  explicit WebhookSecret(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace pdjob::router
