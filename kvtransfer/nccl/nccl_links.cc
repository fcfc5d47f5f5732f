#include "kvtransfer/nccl/nccl_links.h"

#include <string>
#include <utility>
#include <variant>

#include <unistd.h>

#include "common/exit_code.h"
#include "common/limits.h"
#include "common/log.h"

namespace pdjob::kvtransfer {
namespace {

// The GPU's thread hangs inside NCCL, or the GPU does not finish its copies. Slabs and rows cannot
// be reused until the process ends. It ends at once, because destructors would wait for that
// thread.
[[noreturn]] void end_process() {
  log::error(
      "kv: NCCL does not return from an abort, or the GPU does not come to rest after it; this "
      "process ends, to be started again");
  ::_exit(kExitFailed);
}

}  // namespace

Result<std::unique_ptr<NcclLinks>> NcclLinks::open(net::Loop& loop, const NcclConfig& config) {
  return open(loop, config, NcclDevice::open, end_process);
}

Result<std::unique_ptr<NcclLinks>> NcclLinks::open(net::Loop& loop, const NcclConfig& config,
                                                   const OpenDevice& open_device,
                                                   std::function<void()> on_stuck) {
  std::unique_ptr<NcclLinks> links(new NcclLinks(loop, config, on_stuck));
  PDJOB_TRY(
      links->device_,
      open_device({.config = config,
                   .report =
                       [&loop, self = links.get()](NcclDevice::Report report) {
                         loop.post([self, report = std::move(report)] { self->on_report(report); });
                       },
                   .on_stuck = std::move(on_stuck)}));
  return links;
}

NcclLinkKey NcclLinks::add(NcclLink::Side side, NcclLinkUser& user) {
  const NcclLinkKey key{++links_made_};
  entries_[key].reset(new Entry{.core = NcclLink({.side = side,
                                                  .slabs = limits::kNcclSlabs,
                                                  .slab_bytes = limits::kNcclSlabBytes,
                                                  .init_timeout = config_.init_timeout,
                                                  .slab_timeout = config_.slab_timeout,
                                                  .abort_timeout = config_.abort_timeout}),
                                .user = &user,
                                .timer = DeadlineTimer(loop_)});
  return key;
}

void NcclLinks::remove(NcclLinkKey key) {
  entries_.at(key)->user = nullptr;
  step(key, NcclLink::LinkLost{});
}

std::optional<uint32_t> NcclLinks::free_slab(NcclLinkKey key) const {
  return entries_.at(key)->core.free_slab();
}

NcclSlabMemory NcclLinks::slab(NcclLinkKey key, uint32_t slab) const {
  return entries_.at(key)->slabs.at(slab);
}

void NcclLinks::pack(NcclLinkKey key, const NcclLink::Packed& packed, std::vector<GpuCopy> copies) {
  entries_.at(key)->copies.at(packed.slab) = std::move(copies);
  step(key, packed);
}

void NcclLinks::when_released(NcclLinkKey key, TransferId transfer, std::function<void()> then) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return then();
  }
  found->second->releases.emplace(transfer, std::move(then));
  step(key, NcclLink::Ended{transfer});
}

void NcclLinks::step(NcclLinkKey key, const NcclLink::Event& event) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return;
  }
  Entry& entry = *found->second;
  const bool stayed = entry.core.stays();
  entry.last_used = ++uses_;
  std::vector<NcclLink::Effect> effects;
  entry.core.step(event, loop_.exact_now(), effects);
  const NcclCommKey comm{key.value, entry.core.epoch()};
  for (const NcclLink::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(comm, entry, what); }, effect);
  }
  entry.timer.arm(entry.core.next_wakeup(), [this, key] { step(key, TimePassed{}); });
  if (entry.core.state() == NcclLink::State::kClosed && entry.user == nullptr) {
    entries_.erase(key);
  } else if (!stayed && entry.core.stays()) {
    close_one_at_rest();
  } else if (std::holds_alternative<NcclLink::Moved>(event) && entry.core.at_rest()) {
    rested();
  }
}

// --- what the GPU's thread reports

void NcclLinks::on_report(const NcclDevice::Report& report) {
  std::visit([this](const auto& what) { take(what); }, report);
}

void NcclLinks::take(const NcclDevice::IdMade& report) {
  step(NcclLinkKey{report.key.link}, NcclLink::IdMade{report.key.epoch, report.id});
}

void NcclLinks::take(const NcclDevice::Joined& report) {
  const NcclLinkKey key{report.key.link};
  if (const auto entry = entries_.find(key);
      entry != entries_.end() && entry->second->core.epoch() == report.key.epoch) {
    entry->second->slabs = report.slabs;
    step(key, NcclLink::Joined{report.key.epoch});
  }
}

void NcclLinks::take(const NcclDevice::Moved& report) {
  step(NcclLinkKey{report.key.link}, NcclLink::Moved{report.key.epoch, report.slab});
}

void NcclLinks::take(const NcclDevice::Failed& report) {
  step(NcclLinkKey{report.key.link}, NcclLink::Failed{report.key.epoch, report.reason});
}

void NcclLinks::take(const NcclDevice::Left& report) {
  step(NcclLinkKey{report.key.link}, NcclLink::Left{report.key.epoch});
}

// --- what the cores want

void NcclLinks::apply(NcclCommKey key, Entry& /*entry*/, const NcclLink::MakeId& /*effect*/) {
  device_->make_id(key);
}

void NcclLinks::apply(NcclCommKey key, Entry& /*entry*/, const NcclLink::Join& effect) {
  device_->join(key, effect.rank, effect.id);
}

void NcclLinks::apply(NcclCommKey key, Entry& entry, const NcclLink::StartSend& effect) {
  device_->send(key, effect.slab, effect.bytes, std::exchange(entry.copies.at(effect.slab), {}));
}

void NcclLinks::apply(NcclCommKey key, Entry& entry, const NcclLink::StartReceive& effect) {
  std::vector<GpuCopy> copies;
  if (entry.user != nullptr) {
    copies = entry.user->slab_is_expected(effect.slab, effect.bytes, effect.transfer);
  }
  device_->receive(key, effect.slab, effect.bytes, std::move(copies));
}

void NcclLinks::apply(NcclCommKey key, Entry& /*entry*/, const NcclLink::Leave& /*effect*/) {
  device_->leave(key);
}

void NcclLinks::apply(NcclCommKey key, Entry& /*entry*/, const NcclLink::Abort& /*effect*/) {
  device_->abort(key);
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& entry, const NcclLink::Send& effect) {
  if (entry.user != nullptr) {
    entry.user->send_message(effect.message);
  }
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& entry, const NcclLink::TellFree& /*effect*/) {
  if (entry.user != nullptr) {
    entry.user->slab_is_free();
  }
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& entry, const NcclLink::TellFilled& effect) {
  if (entry.user != nullptr) {
    entry.user->slab_is_filled(effect.slab, effect.bytes);
  }
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& entry, const NcclLink::Release& effect) {
  while (auto release = entry.releases.extract(effect.transfer)) {
    release.mapped()();
  }
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& entry, const NcclLink::FailLink& effect) {
  if (entry.user != nullptr) {
    entry.user->link_failed(effect.reason);
  }
}

void NcclLinks::apply(NcclCommKey /*key*/, Entry& /*entry*/,
                      const NcclLink::ReportStuck& /*effect*/) {
  on_stuck_();
}

// --- time and bounds

void NcclLinks::rested() {
  if (entries_.size() > config_.links_max) {
    // Later, because the user is in the middle of a call.
    loop_.post([this] { close_one_at_rest(); });
  }
}

// A soft bound: communicators in use are never closed. The bound on an endpoint's links limits them
// too.
void NcclLinks::close_one_at_rest() {
  size_t staying = 0;  // Communicators that are already leaving make room.
  Entry* oldest = nullptr;
  NcclLinkKey oldest_key;
  for (const auto& [key, entry] : entries_) {
    if (!entry->core.stays()) {
      continue;
    }
    ++staying;
    const bool at_rest = entry->core.state() == NcclLink::State::kReady && entry->user != nullptr &&
                         !entry->user->in_use() && entry->core.at_rest();
    if (at_rest && (oldest == nullptr || entry->last_used < oldest->last_used)) {
      oldest = entry.get();
      oldest_key = key;
    }
  }
  if (staying > config_.links_max && oldest != nullptr) {
    step(oldest_key, NcclLink::LeaveRequested{});
  }
}

}  // namespace pdjob::kvtransfer
