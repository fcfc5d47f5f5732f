// WebhookSecret: signs what a client is called with, as Standard Webhooks says (version 1:
// HMAC-SHA256), so that a receiver knows who calls. Never shown. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::router {

class WebhookSecret {
 public:
  // "whsec_" and 24 to 64 bytes in base64. No error repeats any of it.
  static Result<WebhookSecret> parse(std::string_view text);
  // What a file has, but for the end of its line.
  static Result<WebhookSecret> read(const std::string& file);

  // The value of webhook-signature.
  std::string sign(std::string_view id, int64_t timestamp, std::string_view body) const;

 private:
  explicit WebhookSecret(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace pdjob::router
