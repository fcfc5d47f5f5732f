// Ids as distinct types: the compiler rejects one in place of another, or of a count. Value.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace pdjob {

template <class Tag, class Rep>
struct StrongId {
  Rep value = 0;

  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value; }
};

// One request inside one process; never reused.
using RequestId = StrongId<struct RequestTag, uint64_t>;
// One incarnation of a worker in a router's or launcher's table; never reused.
using WorkerId = StrongId<struct WorkerTag, uint64_t>;
// A sequence's place ("stream") in an engine's KV memory: dense, 0 .. sequences-1, reused.
using SequenceId = StrongId<struct SequenceTag, uint32_t>;

// One KV hand-over, unique across processes and restarts: 128 random bits. The router makes it
// (concurrent legs), or the prefill worker (two-hop). On the wire: 32 hexadecimal digits.
struct TransferId {
  uint64_t high = 0;
  uint64_t low = 0;

  friend auto operator<=>(const TransferId&, const TransferId&) = default;
  std::string to_string() const;
  static std::optional<TransferId> parse(std::string_view text);
};
std::ostream& operator<<(std::ostream& out, const TransferId& id);

// The name of a block of KV rows: a digest of the model's fingerprint, the tenant, and all tokens
// from the beginning (worker/blocks/block_names.h).
struct BlockName {
  uint64_t high = 0;
  uint64_t low = 0;

  friend auto operator<=>(const BlockName&, const BlockName&) = default;
};

}  // namespace pdjob

template <class Tag, class Rep>
struct std::hash<pdjob::StrongId<Tag, Rep>> {
  size_t operator()(pdjob::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>()(id.value);
  }
};
template <>
struct std::hash<pdjob::TransferId> {
  // The bits are already random.
  size_t operator()(const pdjob::TransferId& id) const noexcept { return id.low; }
};
template <>
struct std::hash<pdjob::BlockName> {
  size_t operator()(const pdjob::BlockName& name) const noexcept { return name.low; }
};
