// Bounds of a pool's binary texts (launcher/placement/node_fields.h).
#pragma once

#include <cstddef>

#include "common/limits.h"
#include "launcher/agents/agent_message.h"
#include "launcher/placement/node_fields.h"

namespace pdjob::launcher {

inline constexpr size_t kPoolTextBytesMax = 64 * limits::kKiB;
inline constexpr FieldBounds kPoolFacts{.text_bytes_max = kPoolTextBytesMax,
                                        .list_max = kNodeFactsMax};

}  // namespace pdjob::launcher
