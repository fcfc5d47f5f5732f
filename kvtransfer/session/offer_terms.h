// Conditions on the rows of an offer. Value.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace pdjob::kvtransfer {

// Checked after the last row has been read, before COMMIT. If one is broken, the offer fails
// instead, and the receiver drops the rows.
struct OfferTerms {
  // Its owner sets it before he changes a row. So rows may be offered that nobody keeps: a row that
  // changed while it was read is found here. kUnavailable.
  std::shared_ptr<const std::atomic<bool>> changed = nullptr;
  std::optional<uint64_t> digest = std::nullopt;  // FetchDone::digest. kCorrupt.
};

}  // namespace pdjob::kvtransfer
