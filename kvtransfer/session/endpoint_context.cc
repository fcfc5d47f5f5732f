#include "kvtransfer/session/endpoint_context.h"

#include <algorithm>

#include "common/limits.h"
#include "kvtransfer/rows/row_cursor.h"

namespace pdjob::kvtransfer {

Duration EndpointContext::stall_max(uint64_t bytes) const {
  const auto ranges = static_cast<int64_t>(bytes / limits::kTransferRangeBytes);
  return silence_max() * std::max<int64_t>(1, ranges);
}

Duration EndpointContext::start_max() const {
  Duration longest{};
  for (const TransportTraits& each : transports) {
    longest = std::max(longest, each.start_max);
  }
  return longest;
}

Status check_region(const Region& region, uint32_t rows, std::optional<uint32_t> device) {
  const uint64_t row_bytes = bytes_per_row(region.windows);
  bool sound = !region.windows.empty() && region.windows.size() <= limits::kWindowsMax &&
               rows <= region.rows_max && row_bytes <= limits::kTransferRowBytesMax;
  for (const Window& window : region.windows) {
    sound = sound && window.base != nullptr && window.row_bytes > 0;
  }
  if (region.device && region.device != device) {
    return Error{ErrorCode::kInvalidArgument, "the KV region is in the memory of GPU " +
                                                  std::to_string(*region.device) +
                                                  ", which is not the endpoint's"};
  }
  if (!sound) {
    return Error{ErrorCode::kInvalidArgument,
                 "unusable KV region of " + std::to_string(region.windows.size()) + " windows, " +
                     std::to_string(row_bytes) + " bytes per row, for " + std::to_string(rows) +
                     " of " + std::to_string(region.rows_max) + " rows"};
  }
  return ok();
}

}  // namespace pdjob::kvtransfer
