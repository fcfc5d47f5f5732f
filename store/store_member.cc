#include "store/store_member.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/exit_code.h"
#include "common/log.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/control/job_member.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"
#include "store/file_disk.h"
#include "store/kv_store.h"
#include "store/store_api.h"
#include "store/store_metrics.h"
#include "worker/core/kv_params.h"

namespace pdjob::store {
namespace {

class StoreMember final : net::JobMember::Handler {
 public:
  explicit StoreMember(const StoreMemberOptions& options) : options_(options) {}

  Status start() {
    const net::ProcessSpec& spec = options_.spec;
    std::optional<kvtransfer::LinkKeys> keys;
    if (!spec.link_keys.empty()) {
      PDJOB_TRY(keys, kvtransfer::parse_link_keys(spec.link_keys));
    }
    BlockStoreOptions blocks{.memory_bytes = options_.config.memory_bytes};
    std::vector<StoredBlock> found;
    auto disk = open_disk(found);
    blocks.disk_bytes = disk == nullptr ? 0 : options_.config.disk.bytes;
    PDJOB_TRY(store_,
              KvStore::open(loop_, blocks,
                            {.config = options_.kv, .engine_id = spec.engine_id, .keys = keys},
                            std::move(disk), std::move(found)));
    PDJOB_TRY(api_,
              StoreApi::open(
                  loop_, {.host = spec.host, .port = spec.port, .listen_fd = spec.listen_fd},
                  spec.key, [this] { return metrics_.text(StoreMetrics::now(store_->blocks())); }));
    PDJOB_TRY(member_, net::JobMember::open(loop_, *this, spec, options_.drain_timeout));
    member_->serve({.name = spec.name,
                    .engine_id = spec.engine_id,
                    .role = net::Role::kStore,
                    .host = spec.host,
                    .port = api_->http().port(),
                    .kv_address = worker::kv_address_json(store_->endpoint().address()),
                    .key = spec.key});
    const Slots& slots = store_->blocks().slots();
    log::info("keeps at most " + std::to_string(slots.bytes_max()) +
              " bytes of KV in memory, in slabs of " + std::to_string(slots.slab_bytes()));
    return ok();
  }

  int run() {
    loop_.run();
    return kExitOk;
  }

 private:
  // A store without its disk is better than none. Appends what is on the disk to `found`.
  std::unique_ptr<BlockDisk> open_disk(std::vector<StoredBlock>& found) const {
    const StoreDiskConfig& config = options_.config.disk;
    if (config.path.empty()) {
      return nullptr;
    }
    const Slots slots = Slots::of_disk(config.bytes);
    auto disk = FileDisk::open(config.path, slots.slab_bytes(), slots.slabs(), found);
    if (!disk) {
      log::error("goes on without a disk: " + disk.error().message);
      return nullptr;
    }
    log::info("keeps at most " + std::to_string(slots.bytes_max()) + " bytes of KV in " +
              (*disk)->path() + ", which has " + std::to_string(found.size()) + " blocks");
    return std::move(*disk);
  }

  void on_drain(Duration /*within*/) override {
    api_->http().stop_accepting();
    store_->drain([this] { member_->drained(); });
  }
  size_t replies_alive() override { return api_->http().replies_alive(); }
  void on_shutdown() override { loop_.stop(); }
  net::WorkerLoad current_load() override {
    using std::chrono::milliseconds;
    const auto standstill =
        std::chrono::duration_cast<milliseconds>(store_->endpoint().standstill());
    return {.requests_running = static_cast<uint32_t>(store_->blocks().offers()),
            .standstill_ms = static_cast<uint64_t>(standstill.count())};
  }

  const StoreMemberOptions options_;
  net::EventLoop loop_;
  StoreMetrics metrics_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<StoreApi> api_;
  std::unique_ptr<net::JobMember> member_;
};

}  // namespace

int run_store_member(const StoreMemberOptions& options) {
  net::block_signals();
  StoreMember process(options);
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  return process.run();
}

}  // namespace pdjob::store
