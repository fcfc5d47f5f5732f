// Copies into memory that another core will read next. Pure.
#pragma once

#include <cstddef>

namespace pdjob::kvtransfer {

// memcpy by non-temporal stores where the machine has them: the target's lines are not read first
// and do not displace ours, which is a third faster than memcpy on freshly computed rows
// (docs/kv_link.md).
void copy_rows(std::byte* to, const std::byte* from, size_t bytes);

// Makes all copies so far visible to others. Call before telling anybody of them.
void finish_copies();

}  // namespace pdjob::kvtransfer
