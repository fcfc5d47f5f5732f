// KvRows: memory for the rows of one sequence of the KV world. Its bytes tell whose rows they are.
// Value (move-only).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kvtransfer/rows/region.h"

namespace pdjob::simulation {

constexpr uint32_t kKvRowsMax = 24;
constexpr std::array<uint32_t, 2> kKvRowBytes{16, 24};  // By window.

class KvRows {
 public:
  enum class Memory { kPrivate, kShared };
  explicit KvRows(Memory memory);
  KvRows(KvRows&& other) noexcept;
  KvRows& operator=(KvRows&&) = delete;
  ~KvRows();

  const kvtransfer::Region& region() const { return region_; }
  // The rows [first, last) are those of this owner.
  void fill(uint64_t owner, uint32_t first, uint32_t last);
  bool holds(uint64_t owner, uint32_t rows) const;

 private:
  kvtransfer::Region region_;
  size_t bytes_ = 0;
};

}  // namespace pdjob::simulation
