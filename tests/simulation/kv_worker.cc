#include "tests/simulation/kv_worker.h"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"
#include "kvtransfer/open_transport.h"

namespace pdjob::simulation {
namespace {

using kvtransfer::EndpointAddress;
using kvtransfer::EndpointEvent;
using kvtransfer::TransportTraits;

constexpr size_t kSlots = 4;
constexpr std::array<uint32_t, 2> kRowBytes{16, 24};  // By window.

uint64_t word(uint64_t owner, size_t window, uint32_t row, size_t at) {
  return mix(owner ^ uint64_t{window} << 56 ^ uint64_t{row} << 40 ^ at << 32);
}

std::string listener_name(const EndpointAddress& address, const TransportTraits& transport) {
  return transport.unix_name != nullptr ? address.*transport.unix_name : address.host;
}

std::vector<std::byte> tail_of(TransferId id) {
  std::vector<std::byte> tail(sizeof(uint64_t));
  const uint64_t value = mix(id.low);
  std::memcpy(tail.data(), &value, sizeof value);
  return tail;
}

}  // namespace

// --- KvRows

KvRows::KvRows(Memory memory) {
  for (const uint32_t row_bytes : kRowBytes) {
    region_.windows.push_back({.shared_offset = bytes_, .row_bytes = row_bytes});
    bytes_ += size_t{row_bytes} * kKvRowsMax;
  }
  region_.rows_max = kKvRowsMax;
  if (memory == Memory::kShared) {
    region_.shared_fd = ::memfd_create("sim-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    region_.shared_bytes = bytes_;
    PDJOB_CHECK(::ftruncate(region_.shared_fd, static_cast<off_t>(bytes_)) == 0);
    PDJOB_CHECK(
        ::fcntl(region_.shared_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  }
  const int flags = memory == Memory::kShared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, region_.shared_fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  for (kvtransfer::Window& window : region_.windows) {
    window.base = static_cast<std::byte*>(base) + window.shared_offset;
  }
}

KvRows::KvRows(KvRows&& other) noexcept
    : region_(std::exchange(other.region_, {})), bytes_(other.bytes_) {}

KvRows::~KvRows() {
  if (!region_.windows.empty()) {
    ::munmap(region_.windows.front().base, bytes_);
    if (region_.shared_fd >= 0) {
      ::close(region_.shared_fd);
    }
  }
}

void KvRows::fill(uint64_t owner, uint32_t first, uint32_t last) {
  for (size_t window = 0; window < kRowBytes.size(); ++window) {
    for (uint32_t row = first; row < last; ++row) {
      for (size_t at = 0; at < kRowBytes[window]; at += sizeof(uint64_t)) {
        const uint64_t value = word(owner, window, row, at);
        std::memcpy(region_.windows[window].base + size_t{row} * kRowBytes[window] + at, &value,
                    sizeof value);
      }
    }
  }
}

bool KvRows::holds(uint64_t owner, uint32_t rows) const {
  for (size_t window = 0; window < kRowBytes.size(); ++window) {
    for (uint32_t row = 0; row < rows; ++row) {
      for (size_t at = 0; at < kRowBytes[window]; at += sizeof(uint64_t)) {
        uint64_t value = 0;
        std::memcpy(&value, region_.windows[window].base + size_t{row} * kRowBytes[window] + at,
                    sizeof value);
        if (value != word(owner, window, row, at)) {
          return false;
        }
      }
    }
  }
  return true;
}

// --- KvWorker

KvWorker::KvWorker(KvScene& scene, const std::string& name, bool slow, uint64_t seed)
    : scene_(scene),
      process_(name, {.loop = scene.loop,
                      .turn_max = slow ? Duration(std::chrono::milliseconds(2))
                                       : std::chrono::microseconds(20),
                      .seed = seed}) {
  const auto transports = *kvtransfer::transports_of(scene.config, std::nullopt);
  address_ = {.engine_id = name, .host = name, .unix_path = "@" + name, .host_id = "machine"};
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.canary = mix(i + 1);
    slot.rows.fill(slot.canary, 0, kKvRowsMax);
  }
  if (scene.config.transport == kvtransfer::TransportKind::kNccl) {
    nccl_ = *kvtransfer::NcclLinks::open(
        process_, scene.config.nccl,
        [this](kvtransfer::NcclDevice::Options options) {
          return Result(scene_.nccl.open(process_.make_thread(), std::move(options)));
        },
        [this] { expect(false, "NCCL comes back from every abort, but"); });
  }
  endpoint_.emplace(kvtransfer::EndpointParts{
      .timers = process_,
      .network = *this,
      .config = scene.config,
      .transports = transports,
      .identity = {.engine_id = name, .keys = scene.authority.issue(name), .fingerprint = {}},
      .host_id = address_.host_id,
      .emit =
          [this](const EndpointEvent& event) {
            std::visit([this](const auto& each) { on(each); }, event);
          },
      .open_transport = scene.open_transport,
      .devices = {.nccl = nccl_.get()}});
  for (const TransportTraits& each : transports) {
    scene_.sockets.listen(listener_name(address_, each), process_,
                          [this, kind = each.kind](SimSockets::Socket socket) {
                            endpoint_->sender().accept(std::move(socket), kind);
                          });
  }
}

KvWorker::~KvWorker() { die(); }

// As by kill -9: the kernel closes its sockets, and nobody hears anything else.
void KvWorker::die() {
  process_.die();
  scene_.sockets.forget(process_);
  endpoint_.reset();
  nccl_.reset();
}

Result<std::unique_ptr<kvtransfer::LinkSocket>> KvWorker::connect(
    const EndpointAddress& peer, const TransportTraits& transport) {
  return scene_.sockets.connect(
      listener_name(peer, transport), process_,
      transport.unix_name != nullptr ? SimSockets::Reach::kMachine : SimSockets::Reach::kNetwork);
}

// --- as a prefill worker

void KvWorker::offer(TransferId id) {
  const auto made = offers_.emplace(id, KvRows(KvRows::Memory::kPrivate)).first;
  endpoint_->sender().offer(id, made->second.region(), process_.now() + scene_.config.lease);
}

void KvWorker::rows_ready(TransferId id, uint32_t rows) {
  if (const auto offer = offers_.find(id); offer != offers_.end()) {
    offer->second.fill(id.low, 0, rows);
    endpoint_->sender().rows_ready(id, rows);
  }
}

void KvWorker::commit(TransferId id, uint32_t rows) {
  endpoint_->sender().commit(id, rows, tail_of(id), process_.now());
}

void KvWorker::withdraw(TransferId id) {
  endpoint_->sender().withdraw(id, {ErrorCode::kCancelled, "withdrawn"});
}

void KvWorker::on(const kvtransfer::OfferAwaited& /*event*/) {}

void KvWorker::on(const kvtransfer::OfferDone& event) {
  trace("offer " + event.id.to_string() + " is done");
  expect(scene_.fetched.contains(event.id),
         "an offer is done once its rows have arrived:", event.id);
  end_offer(event.id);
}

void KvWorker::on(const kvtransfer::OfferFailed& event) {
  trace("offer " + event.id.to_string() + " fails: " + event.error.message);
  end_offer(event.id);
}

// Its rows are computed over at once.
void KvWorker::end_offer(TransferId id) {
  expect(offers_.erase(id) == 1, "an offer ends once:", id);
}

// --- as a decode worker

void KvWorker::await(TransferId id, const EndpointAddress& peer, Instant until) {
  if (!fetches_.contains(id)) {
    endpoint_->receiver().await(id, peer, until);
  }
}

bool KvWorker::fetch(TransferId id, const EndpointAddress& peer, uint32_t rows, Instant deadline) {
  const auto free = std::ranges::find_if(slots_, [](const Slot& slot) { return slot.canary != 0; });
  if (free == slots_.end() || fetches_.contains(id)) {
    return false;
  }
  expect(free->rows.holds(free->canary, kKvRowsMax),
         "rows that were given on are not written:", id);
  free->canary = 0;
  const uint64_t number = ++fetches_made_;
  fetches_[id] = {
      .slot = static_cast<size_t>(free - slots_.begin()), .rows = rows, .number = number};
  if (deadline != kNever) {
    process_.call_at(deadline + std::chrono::milliseconds(1), [=, this] {
      const auto found = fetches_.find(id);
      expect(found == fetches_.end() || found->second.number != number || found->second.reported,
             "a fetch ends by its deadline:", id);
    });
  }
  endpoint_->receiver().fetch(id, peer, free->rows.region(), rows, deadline);
  return true;
}

void KvWorker::cancel(TransferId id) { endpoint_->receiver().cancel(id); }

void KvWorker::on(const kvtransfer::FetchDone& event) {
  trace("fetch " + event.id.to_string() + " is done");
  const auto found = fetches_.find(event.id);
  expect(found != fetches_.end() && !found->second.reported, "a fetch ends once:", event.id);
  if (found == fetches_.end()) {
    return;
  }
  const Fetch& fetch = found->second;
  expect(event.rows == fetch.rows && slots_[fetch.slot].rows.holds(event.id.low, fetch.rows),
         "committed rows are the sender's:", event.id);
  expect(event.tail == tail_of(event.id), "a tail arrives as it was sent:", event.id);
  scene_.fetched.insert(event.id);
  ++scene_.done;
  give_on(event.id);
}

void KvWorker::on(const kvtransfer::FetchFailed& event) {
  trace("fetch " + event.id.to_string() + " fails: " + event.error.message +
        (event.region_safe ? "" : ", its rows are held"));
  const auto found = fetches_.find(event.id);
  expect(found != fetches_.end() && !found->second.reported, "a fetch ends once:", event.id);
  if (found == fetches_.end()) {
    return;
  }
  ++scene_.failed;
  found->second.reported = true;
  if (event.region_safe) {
    give_on(event.id);
  }
}

void KvWorker::on(const kvtransfer::FetchReleased& event) {
  trace("fetch " + event.id.to_string() + " lets go of its rows");
  const auto found = fetches_.find(event.id);
  expect(found != fetches_.end() && found->second.reported, "rows are given on once:", event.id);
  if (found != fetches_.end()) {
    ++scene_.released_late;
    give_on(event.id);
  }
}

void KvWorker::give_on(TransferId id) {
  const auto fetch = fetches_.extract(id);
  Slot& slot = slots_[fetch.mapped().slot];
  slot.canary = mix(fetch.mapped().number + 1000);
  slot.rows.fill(slot.canary, 0, kKvRowsMax);
}

void KvWorker::check_idle(bool lied) const {
  const kvtransfer::EndpointStats stats = endpoint_->stats();
  expect(offers_.empty() && stats.offers_alive == 0, "every offer ends, but", stats.offers_alive,
         "live");
  expect(fetches_.empty() && stats.fetches_alive == 0,
         "every fetch ends and gives its rows on, but", stats.fetches_alive, "live");
  expect(stats.waits_alive == 0 || lied, "every wait ends, but", stats.waits_alive, "live");
  for (const Slot& slot : slots_) {
    expect(slot.canary == 0 || slot.rows.holds(slot.canary, kKvRowsMax),
           "rows that were given on are not written");
  }
}

}  // namespace pdjob::simulation
