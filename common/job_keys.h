// The keys inside a job. The launcher makes one root key and keeps it. It derives every
// other key from a purpose and a name. No process can make another one's key from its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/blake2b.h"
#include "common/result.h"

namespace pdjob {

// Value.
class RootKey {
 public:
  // From the operating system's generator. Shells only.
  static RootKey make();
  // From a key that a person has chosen: the same text gives the same keys.
  static RootKey of(std::string_view text);

  // 64 hexadecimal digits. Equal only for equal purposes and names.
  std::string derive(std::string_view purpose, std::string_view name = {}) const;

 private:
  RootKey() = default;
  Digest key_{};
};

// Can it be sent as a key: printable ASCII without spaces, 16 to 512 bytes?
bool is_key(std::string_view text);

// The key in a file that only its owner can read. kInvalidArgument says what is wrong, and what to
// do.
Result<std::string> read_key_file(const std::string& path);

// The header line of a request that shows a key; of an empty key: nothing.
std::string authorization_line(std::string_view key);

// The keys that open a door. Value.
class KeyCheck {
 public:
  // Empty keys are left out. Without any, everybody may come in.
  explicit KeyCheck(const std::vector<std::string>& keys);

  bool open_to_all() const { return digests_.empty(); }
  // `authorization`: the value of that header. Digests are compared, in constant time.
  bool opens(std::string_view authorization) const;

 private:
  std::vector<Digest> digests_;
};

}  // namespace pdjob
