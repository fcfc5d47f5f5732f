// KV events of hostile engines. Each message is read or refused. A message that was read encodes to
// one that decodes alike. The index stays within its bounds, and forgetting the workers empties it.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "common/check.h"
#include "openai/kv_events/kv_events.h"
#include "router/prefix_index/kv_block_index.h"

namespace {

using namespace pdjob;

void tell(router::KvBlockIndex& index, WorkerId worker, const openai::KvEvent& event) {
  if (const auto* stored = std::get_if<openai::KvBlocksStored>(&event)) {
    PDJOB_CHECK(stored->block_size > 0 && !stored->hashes.empty());
    PDJOB_CHECK(stored->tokens.size() == stored->hashes.size() * stored->block_size);
    index.stored(worker, *stored);
  } else if (const auto* removed = std::get_if<openai::KvBlocksRemoved>(&event)) {
    index.removed(worker, *removed);
  } else {
    index.clear(worker);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint32_t kBlocksMax = 64;
  const auto events = openai::decode_kv_events({reinterpret_cast<const char*>(data), size});
  if (!events) {
    return 0;
  }
  const auto again = openai::decode_kv_events(openai::encode_kv_events(*events, 0));
  PDJOB_CHECK(again && again->size() == events->size());
  router::KvBlockIndex index(kBlocksMax);
  for (const uint64_t worker : {1, 2, 1}) {
    for (const openai::KvEvent& event : *events) {
      tell(index, WorkerId{worker}, event);
      PDJOB_CHECK(index.size() <= kBlocksMax);
      PDJOB_CHECK(index.held(WorkerId{1}) + index.held(WorkerId{2}) == index.size());
    }
  }
  index.forget(WorkerId{1});
  index.forget(WorkerId{2});
  PDJOB_CHECK(index.size() == 0);
  return 0;
}
