#include "tests/simulation/kv_worker.h"

#include <cstring>
#include <variant>

namespace pdjob::simulation {
namespace {

using kvtransfer::EndpointAddress;
using kvtransfer::EndpointEvent;

constexpr size_t kSlots = 4;

std::vector<std::byte> tail_of(TransferId id) {
  std::vector<std::byte> tail(sizeof(uint64_t));
  const uint64_t value = mix(id.low);
  std::memcpy(tail.data(), &value, sizeof value);
  return tail;
}

}  // namespace

KvWorker::KvWorker(KvScene& scene, const std::string& name, bool slow, uint64_t seed)
    : scene_(scene),
      process_(scene, name, slow, seed,
               [this](const EndpointEvent& event) {
                 if (!blocks_.take(event)) {
                   std::visit([this](const auto& each) { on(each); }, event);
                 }
               }),
      targets_(process_, kSlots),
      blocks_(process_, mix(seed)) {}

// --- as a prefill worker

void KvWorker::offer(TransferId id) {
  const auto made = offers_.emplace(id, KvRows(KvRows::Memory::kPrivate)).first;
  process_.endpoint().sender().offer(id, made->second.region(),
                                     process().now() + scene_.config.lease);
}

void KvWorker::rows_ready(TransferId id, uint32_t rows) {
  if (const auto offer = offers_.find(id); offer != offers_.end()) {
    offer->second.fill(id.low, 0, rows);
    process_.endpoint().sender().rows_ready(id, rows);
  }
}

void KvWorker::commit(TransferId id, uint32_t rows) {
  process_.endpoint().sender().commit(id, rows, tail_of(id), process().now());
}

void KvWorker::withdraw(TransferId id) {
  process_.endpoint().sender().withdraw(id, {ErrorCode::kCancelled, "withdrawn"});
}

void KvWorker::on(const kvtransfer::OfferDone& event) {
  trace("offer " + event.id.to_string() + " is done");
  process_.expect(scene_.fetched.contains(event.id),
                  "an offer is done once its rows have arrived:", event.id);
  end_offer(event.id);
}

void KvWorker::on(const kvtransfer::OfferFailed& event) {
  trace("offer " + event.id.to_string() + " fails: " + event.error.message);
  end_offer(event.id);
}

// Its rows are computed over at once.
void KvWorker::end_offer(TransferId id) {
  process_.expect(offers_.erase(id) == 1, "an offer ends once:", id);
}

// --- as a decode worker

void KvWorker::await(TransferId id, const EndpointAddress& peer, Instant until) {
  if (!targets_.contains(id)) {
    process_.endpoint().receiver().await(id, peer, until);
  }
}

bool KvWorker::fetch(TransferId id, const EndpointAddress& peer, uint32_t rows, Instant deadline) {
  return targets_.fetch(id, peer, {.rows = rows, .owners = {id.low}, .tail = tail_of(id)},
                        deadline);
}

void KvWorker::cancel(TransferId id) { process_.endpoint().receiver().cancel(id); }

void KvWorker::on(const kvtransfer::FetchDone& event) {
  trace("fetch " + event.id.to_string() + " is done");
  process_.expect(targets_.take(event), "a fetch ends once:", event.id);
  scene_.fetched.insert(event.id);
  ++scene_.done;
}

void KvWorker::on(const kvtransfer::FetchFailed& event) {
  trace("fetch " + event.id.to_string() + " fails: " + event.error.message +
        (event.region_safe ? "" : ", its rows are held"));
  process_.expect(targets_.take(event), "a fetch ends once:", event.id);
  ++scene_.failed;
}

void KvWorker::on(const kvtransfer::FetchReleased& event) {
  trace("fetch " + event.id.to_string() + " lets go of its rows");
  process_.expect(targets_.take(event), "rows are given on once:", event.id);
  ++scene_.released_late;
}

void KvWorker::check_idle(bool lied) const {
  const kvtransfer::EndpointStats stats = process_.endpoint().stats();
  process_.expect(offers_.empty() && stats.offers_alive == 0, "every offer ends, but",
                  stats.offers_alive, "live");
  process_.expect(stats.fetches_alive == 0, "every fetch ends, but", stats.fetches_alive, "live");
  process_.expect(stats.waits_alive == 0 || lied, "every wait ends, but", stats.waits_alive,
                  "live");
  targets_.check_idle();
  blocks_.check_idle();
}

}  // namespace pdjob::simulation
