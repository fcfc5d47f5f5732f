// Bounds of what engines tell of their prefix caches (kv_events.h).
#pragma once

#include "common/limits.h"

namespace pdjob::limits {

inline constexpr uint32_t kKvBlocksMax = 1 << 21;     // Told by engines: 300 MB.
inline constexpr uint32_t kTokenChainsMax = 1 << 18;  // Blocks of text with their tokens: 50 MB.
inline constexpr size_t kKvBatchBytesMax = 4 * kMiB;  // Beyond: its engine is cut off.
inline constexpr size_t kKvBatchesQueuedMax = 1024;   // Of one engine.
inline constexpr size_t kAdaptersMax = 1024;          // Names of them that engines told.
inline constexpr size_t kTokenizedBytesMax = 256 * kKiB;  // A longer request is not asked about.
inline constexpr size_t kTokenizationsQueuedMax = 256;    // Of all engines; beyond: not asked.
inline constexpr size_t kTokenizeReplyBytesMax = 4 * kMiB;

}  // namespace pdjob::limits
