#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

Result<std::vector<Window>> granted_windows(const Grant& grant, std::byte* base) {
  std::vector<Window> windows;
  windows.reserve(grant.windows.size());
  for (const GrantedWindow& window : grant.windows) {
    const uint64_t bytes = uint64_t{window.row_bytes} * grant.rows;
    if (window.shared_offset > grant.shared_bytes ||
        bytes > grant.shared_bytes - window.shared_offset) {
      return Error{ErrorCode::kInvalidArgument, "a granted window lies outside of its memory"};
    }
    windows.push_back({.base = base + window.shared_offset, .row_bytes = window.row_bytes});
  }
  return windows;
}

}  // namespace pdjob::kvtransfer
