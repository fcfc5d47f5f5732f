#include "tests/simulation/sim_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::simulation {

using kvtransfer::NcclCommKey;
using kvtransfer::NcclDevice;
using kvtransfer::NcclLinkId;
using std::chrono::microseconds;

class SimNccl::Device final : public NcclDevice {
 public:
  Device(SimNccl& all, std::unique_ptr<SimThread> thread, Options options)
      : all_(all), thread_(std::move(thread)), options_(std::move(options)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() override {
    for (const auto& [key, place] : places_) {
      place.side().device = nullptr;
    }
  }

  void make_id(NcclCommKey key) override {
    NcclLinkId id{};
    const uint64_t number = ++all_.ids_made_;
    std::memcpy(id.data(), &number, sizeof number);
    report(IdMade{.key = key, .id = id});
  }

  void join(NcclCommKey key, int rank, const NcclLinkId& id) override {
    std::shared_ptr<Comm>& comm = all_.comms_[id];
    if (comm == nullptr) {
      comm = std::make_shared<Comm>();
    }
    Side& side = comm->sides.at(static_cast<size_t>(rank));
    if (side.device != nullptr) {
      return report(Failed{.key = key, .reason = {ErrorCode::kPeerFailed, "the rank is taken"}});
    }
    side.device = this;
    side.key = key;
    side.slabs = std::make_shared<Slabs::element_type>(limits::kNcclSlabs);
    places_[key] = {.comm = comm, .rank = static_cast<size_t>(rank)};
    comm->hung = comm->hung || all_.hangs();
    const Side& other = comm->sides.at(1 - static_cast<size_t>(rank));
    if (other.device != nullptr && !comm->hung) {
      comm->joined = true;
      report_joined(side);
      other.device->report_joined(other);
    }
  }

  void send(NcclCommKey key, uint32_t slab, uint32_t bytes, std::vector<GpuCopy> copies) override {
    add(key, &Side::sends, {.slab = slab, .bytes = bytes, .copies = std::move(copies)});
  }
  void receive(NcclCommKey key, uint32_t slab, uint32_t bytes,
               std::vector<GpuCopy> copies) override {
    add(key, &Side::receives, {.slab = slab, .bytes = bytes, .copies = std::move(copies)});
  }

  // Waits for the operations under way.
  void leave(NcclCommKey key) override {
    const auto place = places_.find(key);
    PDJOB_CHECK(place != places_.end(), key.link);
    const Side& side = place->second.side();
    if (side.sends.empty() && side.receives.empty() && !place->second.comm->hung) {
      abort(key);
    }
  }
  void abort(NcclCommKey key) override {
    Slabs slabs;  // Valid until Left.
    if (const auto place = places_.extract(key)) {
      slabs = std::exchange(place.mapped().side(), {}).slabs;
    }
    report(Left{.key = key}, std::move(slabs));
  }

  void report(Report report, Slabs until = nullptr) {
    thread_->post_at(
        thread_->now() + microseconds(all_.random_.below(5000)),
        [this, told = std::move(report), kept = std::move(until)] { options_.report(told); });
  }
  void report_joined(const Side& side) {
    Joined joined{.key = side.key, .slabs = {}};
    for (auto& slab : *side.slabs) {
      joined.slabs.push_back({.device = slab.data(), .host = slab.data() + kSlabBytes});
    }
    report(std::move(joined));
  }

 private:
  struct Place {
    std::shared_ptr<Comm> comm;
    size_t rank = 0;
    Side& side() const { return comm->sides.at(rank); }
  };

  void add(NcclCommKey key, std::deque<Operation> Side::* queue, Operation operation) {
    const auto place = places_.find(key);
    PDJOB_CHECK(place != places_.end() && operation.bytes <= kSlabBytes, key.link);
    (place->second.side().*queue).push_back(std::move(operation));
    all_.move_all(*place->second.comm);
  }

  SimNccl& all_;
  const std::unique_ptr<SimThread> thread_;
  const Options options_;
  std::map<NcclCommKey, Place> places_;
};

std::unique_ptr<NcclDevice> SimNccl::open(std::unique_ptr<SimThread> thread,
                                          NcclDevice::Options options) {
  return std::make_unique<Device>(*this, std::move(thread), std::move(options));
}

void SimNccl::move_all(Comm& comm) {
  while (move(comm, 0) || move(comm, 1)) {
  }
}

// Moves one slab, if both ends are ready for it.
bool SimNccl::move(Comm& comm, size_t from) {
  Side& sender = comm.sides.at(from);
  Side& receiver = comm.sides.at(1 - from);
  if (comm.hung || sender.sends.empty() || receiver.receives.empty()) {
    return false;
  }
  if (hangs()) {
    comm.hung = true;
    return false;
  }
  const Operation out = std::move(sender.sends.front());
  const Operation in = std::move(receiver.receives.front());
  sender.sends.pop_front();
  receiver.receives.pop_front();
  if (fails() || out.bytes != in.bytes) {
    for (const Side& side : comm.sides) {
      side.device->report(NcclDevice::Failed{
          .key = side.key, .reason = {ErrorCode::kPeerFailed, "an operation failed"}});
    }
    return true;
  }
  const auto copy_all = [](const std::vector<GpuCopy>& copies) {
    for (const GpuCopy& copy : copies) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  };
  copy_all(out.copies);
  std::memcpy(receiver.slabs->at(in.slab).data(), sender.slabs->at(out.slab).data(), out.bytes);
  copy_all(in.copies);
  sender.device->report(NcclDevice::Moved{.key = sender.key, .slab = out.slab});
  receiver.device->report(NcclDevice::Moved{.key = receiver.key, .slab = in.slab});
  return true;
}

}  // namespace pdjob::simulation
