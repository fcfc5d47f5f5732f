// The stores of the job's KV: where they are, and which beginnings of prompts each probably has.
//
// A worker uses the store on its own machine. It takes the rest of a prompt from elsewhere: from
// the store that has most of it. A store has what workers on its machine were sent, because
// it takes all that they compute. Incarnations of stores are never reused. Value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/id.h"
#include "net/control/message.h"
#include "router/prefix_index/prefix_index.h"

namespace pdjob::router {

class KvStores {
 public:
  KvStores() = default;
  explicit KvStores(const std::vector<net::WorkerEntry>& stores) { replace(stores); }

  // As membership messages give them. A store without a KV address is ignored. Of several on a
  // machine, the first one counts.
  void replace(const std::vector<net::WorkerEntry>& stores);
  // More than one: it matters who has what.
  bool several() const { return near_.size() > 1; }

  // The store on this worker's machine. Value 0: there is none.
  WorkerId near(const net::WorkerEntry& worker) const;
  // Its KV address; empty: it has gone.
  const std::string& address(WorkerId store) const;

  // A worker on the store's machine was sent this prompt (prompt_blocks.h).
  void note_sent(std::span<const uint64_t> blocks, WorkerId store);
  // How many leading blocks this store has, and how many any store has had.
  uint32_t matched(std::span<const uint64_t> blocks, WorkerId store) const;
  uint32_t matched(std::span<const uint64_t> blocks) const { return matched(blocks, kAny); }
  // The store with the most leading blocks, if it has more than this one. Value 0: there is none.
  WorkerId more(std::span<const uint64_t> blocks, WorkerId than) const;

 private:
  static constexpr WorkerId kAny{};
  struct Store {
    std::string engine_id;
    std::string address;
  };
  std::map<std::string, WorkerId> near_;  // By the machine's id.
  std::map<WorkerId, Store> stores_;
  uint32_t ids_made_ = 0;
  std::optional<PrefixIndex> index_;  // While there are several.
};

}  // namespace pdjob::router
