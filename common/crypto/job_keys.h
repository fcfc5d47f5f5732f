// The keys inside a job. The launcher makes one root key and keeps it. It derives every other key
// from a purpose and a name. A process cannot compute another one's key from its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/crypto/blake2b.h"
#include "common/result.h"

namespace pdjob {

// Value.
class RootKey {
 public:
  // Makes a key from the operating system's random generator. Shells only.
  static RootKey make();
  // Makes a key from one that a person chose: the same text gives the same keys.
  static RootKey of(std::string_view text);

  // Returns 64 hexadecimal digits, equal only for equal purposes and names.
  std::string derive(std::string_view purpose, std::string_view name = {}) const;

 private:
  RootKey() = default;
  Digest key_{};
};

// True for a text that can be sent as a key: printable ASCII without spaces, 16 to 512 bytes.
bool is_key(std::string_view text);

// Reads the key from a secret file (common/files/small_file.h). kInvalidArgument says what is
// wrong, and what to do.
Result<std::string> read_key_file(const std::string& path);

// The header line that shows a key in a request. Empty for an empty key.
std::string authorization_line(std::string_view key);

// The keys that a server accepts. Value.
class KeyCheck {
 public:
  // Ignores empty keys. Without any key, every request is accepted.
  explicit KeyCheck(const std::vector<std::string>& keys);

  bool open_to_all() const { return digests_.empty(); }
  // True if `authorization`, the value of that header, shows an accepted key. Compares digests in
  // constant time.
  bool opens(std::string_view authorization) const;

 private:
  std::vector<Digest> digests_;
};

}  // namespace pdjob
