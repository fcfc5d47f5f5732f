#include "kvtransfer/nccl/nccl_pair.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/limits.h"

namespace pdjob::kvtransfer {

NcclPair::~NcclPair() {
  if (ring_ != nullptr) {
    rings_.release(*ring_);
  }
}

void NcclPair::join(int rank, const NcclLinkId& id, uint32_t ctas_max) {
  peer_ = 1 - rank;
  NcclUniqueId unique_id;
  static_assert(sizeof unique_id == sizeof id);
  std::memcpy(&unique_id, id.data(), sizeof unique_id);
  NcclCommConfig config;
  config.blocking = 0;
  config.min_ctas = 1;
  config.max_ctas = static_cast<int>(ctas_max);
  config.split_share = 0;
  config.comm_name = "pdjob-kv";
  accept(nccl_.comm_init_rank_config(&communicator_, 2, unique_id, rank, &config),
         "join a communicator");
}

void NcclPair::start(Operation operation) { waiting_.push_back(std::move(operation)); }

void NcclPair::leave() {
  if (stage_ == Stage::kFailed) {
    return;
  }
  stage_ = Stage::kLeaving;
  if (registration_ != nullptr &&
      !accept(nccl_.comm_deregister(communicator_, std::exchange(registration_, nullptr)),
              "deregister memory")) {
    return;
  }
  accept(nccl_.comm_finalize(communicator_), "finalize a communicator");
}

bool NcclPair::busy() const {
  return stage_ == Stage::kJoining || stage_ == Stage::kLeaving || stage_ == Stage::kAborted ||
         !waiting_.empty() || issued_ || !running_.empty();
}

void NcclPair::aborted() {
  communicator_ = nullptr;
  stage_ = Stage::kAborted;
}

// An error also means that all work has ended.
bool NcclPair::is_idle() const {
  return ring_ == nullptr || gpu_.stream_query(ring_->stream) != kGpuNotReady;
}

bool NcclPair::poll() {
  if (stage_ == Stage::kAborted) {
    return !is_idle();
  }
  if (!settled()) {
    return true;
  }
  switch (stage_) {
    case Stage::kJoining:
      begin();
      return true;
    case Stage::kReady:
      if (issued_) {
        complete_issue();
      }
      while (stage_ == Stage::kReady && !issued_ && !waiting_.empty()) {
        issue();
      }
      poll_running();
      return true;
    case Stage::kLeaving:
      return finish_leaving();
    case Stage::kFailed:
    case Stage::kAborted:
      return true;
  }
  return true;
}

// Asks NCCL for the communicator's state. False: in progress, or it has failed.
bool NcclPair::settled() {
  if (stage_ == Stage::kFailed) {
    return false;
  }
  NcclResult state = kNcclSuccess;
  return accept(nccl_.comm_get_async_error(communicator_, &state),
                "ask for a communicator's state") &&
         accept(state, "use a communicator") && state != kNcclInProgress;
}

void NcclPair::begin() {
  Result<SlabRing*> ring = rings_.acquire();
  if (!ring) {
    return fail(ring.error());
  }
  ring_ = *ring;
  if (!accept(nccl_.comm_register(communicator_, ring_->device, ring_->bytes(), &registration_),
              "register memory")) {
    return;
  }
  stage_ = Stage::kReady;
  std::vector<NcclSlabMemory> slabs;
  for (uint32_t slab = 0; slab < ring_->events.size(); ++slab) {
    slabs.push_back({.device = ring_->device_slab(slab), .host = ring_->host_slab(slab)});
  }
  report_(NcclDevice::Joined{key_, std::move(slabs)});
}

void NcclPair::issue() {
  Operation operation = std::move(waiting_.front());
  waiting_.pop_front();
  std::byte* const device = ring_->device_slab(operation.slab);
  if (operation.kind == Operation::Kind::kReceive) {
    if (!accept(
            nccl_.recv(device, operation.bytes, kNcclUint8, peer_, communicator_, ring_->stream),
            "receive")) {
      return;
    }
  } else if (!accept(copy_batch(gpu_, operation.copies, ring_->stream), "pack rows") ||
             !accept(nccl_.send(device, operation.bytes, kNcclUint8, peer_, communicator_,
                                ring_->stream),
                     "send")) {
    return;
  }
  issued_ = std::move(operation);
  // While NCCL is in progress, the stream must get no other work.
  if (settled()) {
    complete_issue();
  }
}

void NcclPair::complete_issue() {
  Operation operation = *std::exchange(issued_, std::nullopt);
  if (operation.kind == Operation::Kind::kReceive &&
      !accept(copy_batch(gpu_, operation.copies, ring_->stream), "unpack rows")) {
    return;
  }
  if (accept(gpu_.event_record(ring_->events[operation.slab], ring_->stream), "record an event")) {
    running_.push_back(std::move(operation));
  }
}

void NcclPair::poll_running() {
  while (stage_ == Stage::kReady && !running_.empty()) {
    const uint32_t slab = running_.front().slab;
    const GpuResult state = gpu_.event_query(ring_->events[slab]);
    if (state == kGpuNotReady || !accept(state, "move rows")) {
      return;
    }
    running_.pop_front();
    report_(NcclDevice::Moved{key_, slab});
  }
}

bool NcclPair::finish_leaving() {
  NcclComm* const done = std::exchange(communicator_, nullptr);
  if (const NcclResult destroyed = nccl_.comm_destroy(done); destroyed != kNcclSuccess) {
    communicator_ = done;
    accept(destroyed, "destroy a communicator");
    return true;
  }
  return false;
}

bool NcclPair::accept(NcclResult result, const char* what) {
  if (result == kNcclSuccess || result == kNcclInProgress) {
    return true;
  }
  fail({ErrorCode::kUnavailable,
        std::string("NCCL cannot ") + what + ": " + nccl_.explain(result, communicator_)});
  return false;
}

bool NcclPair::accept(GpuResult result, const char* what) {
  if (result != kGpuSuccess) {
    fail(gpu_error(gpu_, result, what));
  }
  return result == kGpuSuccess;
}

void NcclPair::fail(Error reason) {
  if (stage_ != Stage::kFailed) {
    stage_ = Stage::kFailed;
    waiting_.clear();
    issued_.reset();
    running_.clear();
    report_(NcclDevice::Failed{key_, std::move(reason)});
  }
}

}  // namespace pdjob::kvtransfer
