#include "router/policies/kv_stores.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/limits.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kHostId = "remote_host_id";

// Of a KV address (worker/core/kv_params.h); empty: unknown.
std::string machine_of(const std::string& kv_address) {
  static constexpr std::array kNames = {kHostId};
  const auto address = openai::JsonObject::scan(kv_address, kNames);
  return address ? openai::json_string(address->value(kHostId)).value_or("") : "";
}

// A store reports its own address: one that would break a request's head is ignored.
bool fits_a_header(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

void KvStores::replace(const std::vector<net::WorkerEntry>& stores) {
  near_.clear();
  std::map<WorkerId, Store> before;
  before.swap(stores_);
  for (const net::WorkerEntry& entry : stores) {
    const std::string machine = machine_of(entry.kv_address);
    if (machine.empty() || !fits_a_header(entry.kv_address) || near_.contains(machine)) {
      continue;
    }
    const auto known = std::ranges::find_if(before, [&entry](const auto& each) {
      return each.second.engine_id == entry.engine_id && each.second.address == entry.kv_address;
    });
    const WorkerId id = known != before.end() ? known->first : WorkerId{++ids_made_};
    near_.emplace(machine, id);
    stores_[id] = {.engine_id = entry.engine_id, .address = entry.kv_address};
  }
  if (several() && !index_) {
    index_.emplace(limits::kPrefixEntriesMax);
  }
}

WorkerId KvStores::near(const net::WorkerEntry& worker) const {
  if (near_.empty()) {
    return {};
  }
  const auto found = near_.find(machine_of(worker.kv_address));
  return found == near_.end() ? WorkerId{} : found->second;
}

const std::string& KvStores::address(WorkerId store) const {
  static const std::string none;
  const auto found = stores_.find(store);
  return found == stores_.end() ? none : found->second.address;
}

void KvStores::note_sent(std::span<const uint64_t> blocks, WorkerId store) {
  if (index_ && stores_.contains(store)) {
    index_->insert(blocks, store);
    index_->insert(blocks, kAny);
  }
}

uint32_t KvStores::matched(std::span<const uint64_t> blocks, WorkerId store) const {
  return index_ && several() ? index_->matched(blocks, store) : 0;
}

WorkerId KvStores::more(std::span<const uint64_t> blocks, WorkerId than) const {
  WorkerId best;
  uint32_t most = matched(blocks, than);
  const uint32_t possible = matched(blocks);
  for (auto each = stores_.begin(); each != stores_.end() && most < possible; ++each) {
    if (const uint32_t has = matched(blocks, each->first); has > most) {
      most = has;
      best = each->first;
    }
  }
  return best;
}

}  // namespace pdjob::router
