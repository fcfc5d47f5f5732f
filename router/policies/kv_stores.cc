#include "router/policies/kv_stores.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "openai/headers.h"
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

KvStores::KvStores(const std::vector<net::WorkerEntry>& stores) {
  for (const net::WorkerEntry& store : stores) {
    const std::string machine = machine_of(store.kv_address);
    if (!machine.empty() && fits_a_header(store.kv_address)) {
      line_on_.try_emplace(machine, std::string(openai::header::kKvStore)
                                        .append(": ")
                                        .append(store.kv_address)
                                        .append("\r\n"));
    }
  }
}

std::string KvStores::line_for(const net::WorkerEntry& worker) const {
  if (line_on_.empty()) {
    return "";
  }
  const auto line = line_on_.find(machine_of(worker.kv_address));
  return line == line_on_.end() ? "" : line->second;
}

}  // namespace pdjob::router
