#include "router/async/webhook_secret.h"

#include <array>
#include <utility>

#include <sodium.h>

#include "common/files/small_file.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kPrefix = "whsec_";
constexpr size_t kKeyBytesMin = 24;
constexpr size_t kKeyBytesMax = 64;
constexpr size_t kFileBytesMax = 256;

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Result<WebhookSecret> WebhookSecret::parse(std::string_view text) {
  std::string key(kKeyBytesMax, '\0');
  size_t size = 0;
  if (!text.starts_with(kPrefix) ||
      sodium_base642bin(reinterpret_cast<unsigned char*>(key.data()), key.size(),
                        text.data() + kPrefix.size(), text.size() - kPrefix.size(), nullptr, &size,
                        nullptr, sodium_base64_VARIANT_ORIGINAL) != 0 ||
      size < kKeyBytesMin) {
    return Error{ErrorCode::kInvalidArgument, "must be whsec_ and 24 to 64 bytes in base64"};
  }
  key.resize(size);
  return WebhookSecret(std::move(key));
}

Result<WebhookSecret> WebhookSecret::read(const std::string& file) {
  const auto read = read_small_file(file, kFileBytesMax);
  if (!read || read->empty()) {
    return Error{ErrorCode::kUnavailable,
                 file + ": cannot be read: " + (read ? "it is empty" : read.error().message)};
  }
  std::string text = *read;
  text.erase(text.find_last_not_of("\r\n") + 1);
  auto secret = parse(text);
  return secret ? std::move(secret)
                : Error{ErrorCode::kInvalidArgument, file + ": " + secret.error().message};
}

std::string WebhookSecret::sign(std::string_view id, int64_t timestamp,
                                std::string_view body) const {
  std::string head(id);
  head += '.' + std::to_string(timestamp) + '.';
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key_), key_.size());
  crypto_auth_hmacsha256_update(&state, raw(head), head.size());
  crypto_auth_hmacsha256_update(&state, raw(body), body.size());
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> mac{};
  crypto_auth_hmacsha256_final(&state, mac.data());
  std::array<char, sodium_base64_ENCODED_LEN(crypto_auth_hmacsha256_BYTES,
                                             sodium_base64_VARIANT_ORIGINAL)>
      text{};
  sodium_bin2base64(text.data(), text.size(), mac.data(), mac.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  return std::string("v1,") + text.data();
}

}  // namespace pdjob::router
