#include "common/crypto/job_keys.h"

#include <algorithm>
#include <cctype>

#include "common/files/small_file.h"
#include "common/hex.h"
#include "common/random.h"

namespace pdjob {
namespace {

constexpr size_t kKeyBytesMin = 16;
constexpr size_t kKeyBytesMax = 512;
constexpr std::string_view kScheme = "bearer ";

Digest digest_of(std::string_view key) { return Blake2b("pdjob key check").add(key).finish(); }

Error unusable(const std::string& path, const std::string& why) {
  return {ErrorCode::kInvalidArgument, "key file " + path + ": " + why};
}

}  // namespace

RootKey RootKey::make() {
  Blake2b key("pdjob root key");
  for (int word = 0; word < 4; ++word) {
    key.add(entropy());
  }
  RootKey made;
  made.key_ = key.finish();
  return made;
}

RootKey RootKey::of(std::string_view text) {
  RootKey made;
  made.key_ = Blake2b("pdjob root text").add(text).finish();
  return made;
}

std::string RootKey::derive(std::string_view purpose, std::string_view name) const {
  return hex_of(Blake2b("pdjob job key 1", key_)
                    .add(uint64_t{purpose.size()})
                    .add(purpose)
                    .add(name)
                    .finish());
}

bool is_key(std::string_view text) {
  return text.size() >= kKeyBytesMin && text.size() <= kKeyBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

Result<std::string> read_key_file(const std::string& path) {
  const auto read = read_small_file(path, kKeyBytesMax + 2, Secrecy::kSecret);
  if (!read) {
    return unusable(path, read.error().message);
  }
  std::string text = *read;
  text.erase(text.find_last_not_of("\r\n") + 1);
  if (!is_key(text)) {
    return unusable(path,
                    "it must hold one line of 16 to 512 printable characters without spaces; "
                    "`openssl rand -hex 32` makes one");
  }
  return text;
}

std::string authorization_line(std::string_view key) {
  return key.empty() ? std::string() : "Authorization: Bearer " + std::string(key) + "\r\n";
}

KeyCheck::KeyCheck(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!key.empty()) {
      digests_.push_back(digest_of(key));
    }
  }
}

bool KeyCheck::opens(std::string_view authorization) const {
  if (open_to_all()) {
    return true;
  }
  const bool schemed =
      authorization.size() > kScheme.size() &&
      std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == b;
      });
  if (!schemed) {
    return false;
  }
  const Digest shown = digest_of(authorization.substr(kScheme.size()));
  bool opens = false;
  for (const Digest& digest : digests_) {
    opens |= equal_digests(shown, digest);
  }
  return opens;
}

}  // namespace pdjob
