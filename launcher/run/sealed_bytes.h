// The form of a ledger on disk: a number that tells its kind, its version, its fields
// (net/control/wire_fields.h), and a digest of all that. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::launcher {

struct SealKind {
  uint32_t magic = 0;
  uint16_t version = 0;
  const char* purpose = "";  // Of the digest.
  const char* name = "";     // In errors: "the ledger".
};

std::string seal(const SealKind& kind, std::string_view fields);
// Returns the fields, a part of `bytes`. kCorrupt: these are no such bytes, or some are damaged.
// kUnsupported: of another version.
Result<std::string_view> unseal(const SealKind& kind, std::string_view bytes);

Error damaged(const SealKind& kind);

}  // namespace pdjob::launcher
