// BodyUnpacker decodes the body of a request that has a Content-Encoding (RFC 9110, 8.4), in
// slices, so that a server's other connections get their turn. It bounds the work that few bytes
// can cause. Value.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/packing/unpacker.h"
#include "common/result.h"
#include "net/http/http_parser.h"

namespace pdjob::net {

// For Accept-Encoding.
inline constexpr const char* kBodyCodings = "gzip, zstd";
// The request's Content-Encoding. Empty optional: it is not among them, or there are several. Pure.
std::optional<Packing> body_packing(const std::vector<HttpHeader>& headers);

class BodyUnpacker {
 public:
  // Requires: `packing` is not kNone.
  BodyUnpacker(Packing packing, std::string packed);

  // Appends the next slice to `body`. Returns true once it is whole.
  // - kCorrupt: the body is not of this coding, or is cut off.
  // - kOverloaded: it grows to more than 1 MiB and 100 times its size.
  Result<bool> step(std::string& body);
  size_t packed_bytes() const { return packed_.size(); }

 private:
  const std::string packed_;
  std::span<const char> left_;
  const std::unique_ptr<Unpacker> unpacker_;
};

}  // namespace pdjob::net
