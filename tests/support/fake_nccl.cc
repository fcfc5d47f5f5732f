#include "tests/support/fake_nccl.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "kvtransfer/nccl/nccl_api.h"
#include "tests/support/fake_cudart.h"

using namespace pdjob;
using namespace pdjob::kvtransfer;

namespace {

constexpr uint64_t kBye = UINT64_MAX;  // Sent in place of a count when a communicator ends.

enum class Stage { kJoining, kReady, kFinalizing, kFinalized, kGone };

struct Operation {
  NcclComm* communicator = nullptr;
  bool is_send = false;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  GpuStream* stream = nullptr;
};

}  // namespace

namespace pdjob::kvtransfer {

struct NcclComm {
  int device = 0;
  int rank = 0;
  std::string name;  // From the unique id; names a socket.
  std::atomic<Stage> stage = Stage::kJoining;
  std::atomic<bool> aborted = false;
  std::atomic<NcclResult> error = kNcclSuccess;
  std::atomic<int> kernels = 0;  // Launched and still running.
  int socket = -1;
  std::thread helper;         // Joins, and later finalizes.
  int polls_in_progress = 0;  // The remaining polls of `deferred`.
  std::unique_ptr<Operation> deferred;
  std::set<void*> registrations;
};

}  // namespace pdjob::kvtransfer

namespace {

struct Device {
  std::thread::id thread;
  int communicators = 0;
};

// Never destroyed: the threads of streams outlive main().
struct World {
  std::mutex mutex;
  std::map<std::string, int> listeners;  // The key is the name of a unique id.
  std::map<int, Device> devices;
  std::set<NcclComm*> alive;
  std::vector<NcclComm*> ended;  // Kept, so that a late use is reported instead of crashing.
  std::map<char*, size_t> memory;
  std::atomic<uint64_t> ids = 0;
  std::atomic<int> violations = 0;
  std::array<std::atomic<int>, 64> kernels{};  // By device.
};
World& world() {
  static World& made = *new World;
  return made;
}

thread_local bool grouping = false;
thread_local std::vector<NcclComm*> group_aborts;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<int>(std::strtol(value, nullptr, 10));
}

NcclResult violation(const char* what) {
  ++world().violations;
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  return kNcclInvalidUsage;
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// While communicators exist, all calls for a device come from one thread.
bool keeps_thread_rule(int device) {
  const std::lock_guard lock(world().mutex);
  Device& state = world().devices[device];
  if (state.communicators == 0) {
    state.thread = std::this_thread::get_id();
  }
  return state.thread == std::this_thread::get_id();
}

// Checks the rules of every call on a communicator.
NcclResult check(NcclComm* communicator, bool may_be_in_progress = false) {
  {
    const std::lock_guard lock(world().mutex);
    if (!world().alive.contains(communicator)) {
      return violation("a communicator is used after its end");
    }
  }
  if (!keeps_thread_rule(communicator->device)) {
    return violation("two threads call NCCL for one device");
  }
  if (!may_be_in_progress && (communicator->stage == Stage::kJoining || communicator->deferred)) {
    return violation("a call while another is in progress");
  }
  return kNcclSuccess;
}

// --- sockets

sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return address;
}
socklen_t size_of(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

enum class Moved { kAll, kAborted, kPeerGone };

// Sends or receives everything. Waits in short steps, so that it notices an abort.
Moved move_bytes(NcclComm& communicator, bool is_send, void* memory, size_t bytes) {
  auto* position = static_cast<char*>(memory);
  while (bytes > 0) {
    if (communicator.aborted) {
      return Moved::kAborted;
    }
    const ssize_t moved =
        is_send ? ::send(communicator.socket, position, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                : ::recv(communicator.socket, position, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      position += moved;
      bytes -= static_cast<size_t>(moved);
    } else if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
      pollfd state{.fd = communicator.socket,
                   .events = static_cast<short>(is_send ? POLLOUT : POLLIN),
                   .revents = 0};
      ::poll(&state, 1, 2);
    } else {
      return Moved::kPeerGone;
    }
  }
  return Moved::kAll;
}

void spin_until_abort(const NcclComm& communicator) {
  while (!communicator.aborted) {
    sleep_ms(1);
  }
}

// --- what runs on streams

void run_operation(Operation& operation) {
  NcclComm& communicator = *operation.communicator;
  for (int left = setting("FAKE_NCCL_MOVE_DELAY_MS", 0); left > 0 && !communicator.aborted;
       --left) {
    sleep_ms(1);
  }
  uint64_t count = operation.bytes;
  Moved moved = move_bytes(communicator, operation.is_send, &count, sizeof count);
  if (moved == Moved::kAll && count != operation.bytes) {
    violation("the two ends of a transfer have different counts");
    communicator.error = kNcclInternalError;
    return spin_until_abort(communicator);
  }
  if (moved == Moved::kAll) {
    moved = move_bytes(communicator, operation.is_send, operation.memory, operation.bytes);
  }
  if (moved == Moved::kPeerGone) {
    const char* death = std::getenv("FAKE_NCCL_PEER_DEATH");
    if (death != nullptr && std::string(death) == "net") {
      communicator.error = kNcclRemoteError;
    }
    return spin_until_abort(communicator);
  }
  if (moved == Moved::kAll && !operation.is_send && setting("FAKE_NCCL_FLIP_BIT", 0) != 0) {
    operation.memory[operation.bytes / 2] ^= std::byte{1};
  }
}

void kernel(void* argument) {
  const std::unique_ptr<Operation> operation(static_cast<Operation*>(argument));
  run_operation(*operation);
  --world().kernels.at(static_cast<size_t>(operation->communicator->device));
  --operation->communicator->kernels;
}

void launch(std::unique_ptr<Operation> operation) {
  ++operation->communicator->kernels;
  ++world().kernels.at(static_cast<size_t>(operation->communicator->device));
  GpuStream* const stream = operation->stream;
  fakecudart_launch(stream, kernel, operation.release());
}

NcclResult start(Operation operation) {
  if (const NcclResult checked = check(operation.communicator); checked != kNcclSuccess) {
    return checked;
  }
  if (operation.communicator->error != kNcclSuccess) {
    return operation.communicator->error;
  }
  auto made = std::make_unique<Operation>(operation);
  const int polls = setting("FAKE_NCCL_IN_PROGRESS", 0);
  if (polls == 0) {
    launch(std::move(made));
    return kNcclSuccess;
  }
  fakecudart_forbid(operation.stream, 1);
  operation.communicator->polls_in_progress = polls;
  operation.communicator->deferred = std::move(made);
  return kNcclInProgress;
}

// --- the life of a communicator

int accept_peer(NcclComm& communicator, int listener) {
  while (!communicator.aborted) {
    pollfd state{.fd = listener, .events = POLLIN, .revents = 0};
    if (::poll(&state, 1, 2) == 1) {
      return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    }
  }
  return -1;
}

int connect_to_peer(NcclComm& communicator) {
  const sockaddr_un address = address_of(communicator.name);
  while (!communicator.aborted) {
    const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(made, reinterpret_cast<const sockaddr*>(&address), size_of(communicator.name)) ==
        0) {
      return made;
    }
    ::close(made);
    sleep_ms(2);
  }
  return -1;
}

void wait_ms(const NcclComm& communicator, int delay) {
  for (int left = delay; left > 0 && !communicator.aborted; --left) {
    sleep_ms(1);
  }
}

void join(NcclComm& communicator, int listener) {
  wait_ms(communicator, setting("FAKE_NCCL_INIT_DELAY_MS", 0));
  if (setting("FAKE_NCCL_INIT_FAILS", 0) != 0) {
    communicator.error = kNcclSystemError;
  } else {
    communicator.socket =
        listener >= 0 ? accept_peer(communicator, listener) : connect_to_peer(communicator);
    // The two ends tell each other that they are there.
    char byte = 'x';
    if (communicator.socket >= 0 && move_bytes(communicator, true, &byte, 1) == Moved::kAll &&
        move_bytes(communicator, false, &byte, 1) == Moved::kAll) {
      communicator.stage = Stage::kReady;
    }
  }
  if (listener >= 0) {
    ::close(listener);
  }
}

void finalize(NcclComm& communicator) {
  while (communicator.kernels > 0 && !communicator.aborted) {
    sleep_ms(1);
  }
  wait_ms(communicator, setting("FAKE_NCCL_LEAVE_DELAY_MS", 0));
  uint64_t word = kBye;
  if (move_bytes(communicator, true, &word, sizeof word) != Moved::kAll ||
      move_bytes(communicator, false, &word, sizeof word) != Moved::kAll || word != kBye) {
    return;  // The peer is dead: the call stays in progress forever.
  }
  communicator.stage = Stage::kFinalized;
}

void reclaim(NcclComm& communicator) {
  communicator.aborted = true;
  const bool syncs = setting("FAKE_NCCL_ABORT_SYNCS", 0) != 0;
  while (communicator.kernels > 0 ||
         (syncs && world().kernels.at(static_cast<size_t>(communicator.device)) > 0)) {
    sleep_ms(1);
  }
  if (communicator.helper.joinable()) {
    communicator.helper.join();
  }
  if (communicator.socket >= 0) {
    ::close(communicator.socket);
  }
  if (communicator.deferred) {
    fakecudart_forbid(communicator.deferred->stream, 0);
    communicator.deferred.reset();
  }
  communicator.stage = Stage::kGone;
  const std::lock_guard lock(world().mutex);
  world().alive.erase(&communicator);
  world().ended.push_back(&communicator);
  --world().devices[communicator.device].communicators;
}

}  // namespace

extern "C" {

int fakenccl_violations() { return world().violations; }
int fakenccl_communicators() {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(world().alive.size());
}
int fakenccl_allocations() {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(world().memory.size());
}

// NOLINTBEGIN(readability-identifier-naming): the names of the real library.

NcclResult ncclGetVersion(int* version) {
  *version = setting("FAKE_NCCL_VERSION", 22809);
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  static constexpr const char* kNames[] = {"no error",
                                           "unhandled cuda error",
                                           "system error",
                                           "internal error",
                                           "invalid argument",
                                           "invalid usage",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress"};
  return kNames[result];
}

const char* ncclGetLastError(NcclComm* /*communicator*/) { return ""; }

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string name = "fakenccl-" + std::to_string(::getpid()) + "-" +
                           std::to_string(++world().ids) + "-" + std::to_string(now);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(name);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size_of(name)) != 0 ||
      ::listen(listener, 1) != 0) {
    ::close(listener);
    return kNcclSystemError;
  }
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, name.data(), name.size());
  const std::lock_guard lock(world().mutex);
  world().listeners[name] = listener;
  return kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm** communicator, int ranks, NcclUniqueId id, int rank,
                                  NcclCommConfig* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || config == nullptr || config->magic != 0xcafebeef ||
      config->size != sizeof *config || config->max_ctas < 1) {
    return violation("a communicator that is not of two ranks, or without a good configuration");
  }
  if (config->blocking != 0) {
    return violation("a blocking communicator");
  }
  const int device = fakecudart_current_device();
  if (!keeps_thread_rule(device)) {
    return violation("two threads call NCCL for one device");
  }
  auto* made = new NcclComm;
  made->device = device;
  made->rank = rank;
  made->name = id.internal;
  int listener = -1;
  {
    const std::lock_guard lock(world().mutex);
    if (const auto found = world().listeners.find(made->name);
        rank == 0 && found != world().listeners.end()) {
      listener = found->second;
      world().listeners.erase(found);
    }
    world().alive.insert(made);
    ++world().devices[device].communicators;
  }
  made->helper = std::thread([made, listener] { join(*made, listener); });
  *communicator = made;
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* communicator, NcclResult* state) {
  if (const NcclResult checked = check(communicator, true); checked != kNcclSuccess) {
    return checked;
  }
  if (communicator->error != kNcclSuccess) {
    *state = communicator->error;
  } else if ((communicator->deferred && communicator->polls_in_progress-- > 0) ||
             communicator->stage == Stage::kJoining || communicator->stage == Stage::kFinalizing) {
    *state = kNcclInProgress;
  } else {
    *state = kNcclSuccess;
    if (communicator->deferred) {
      fakecudart_forbid(communicator->deferred->stream, 0);
      launch(std::move(communicator->deferred));
    }
  }
  return kNcclSuccess;
}

NcclResult ncclSend(const void* memory, size_t count, NcclDataType /*type*/, int /*peer*/,
                    NcclComm* communicator, GpuStream* stream) {
  return start({.communicator = communicator,
                .is_send = true,
                .memory = static_cast<std::byte*>(const_cast<void*>(memory)),
                .bytes = count,
                .stream = stream});
}

NcclResult ncclRecv(void* memory, size_t count, NcclDataType /*type*/, int /*peer*/,
                    NcclComm* communicator, GpuStream* stream) {
  return start({.communicator = communicator,
                .memory = static_cast<std::byte*>(memory),
                .bytes = count,
                .stream = stream});
}

NcclResult ncclCommFinalize(NcclComm* communicator) {
  if (const NcclResult checked = check(communicator); checked != kNcclSuccess) {
    return checked;
  }
  communicator->helper.join();  // It has already joined.
  communicator->stage = Stage::kFinalizing;
  communicator->helper = std::thread([communicator] { finalize(*communicator); });
  return kNcclInProgress;
}

NcclResult ncclCommDestroy(NcclComm* communicator) {
  if (const NcclResult checked = check(communicator); checked != kNcclSuccess) {
    return checked;
  }
  if (communicator->stage != Stage::kFinalized) {
    return violation("a communicator is destroyed that is not finalized: that can hang");
  }
  if (!communicator->registrations.empty()) {
    return violation("a communicator is destroyed with memory registered");
  }
  reclaim(*communicator);
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm* communicator) {
  if (const NcclResult checked = check(communicator, true); checked != kNcclSuccess) {
    return checked;
  }
  while (setting("FAKE_NCCL_ABORT_BLOCKS", 0) != 0) {
    sleep_ms(10);
  }
  if (grouping) {
    group_aborts.push_back(communicator);
  } else {
    reclaim(*communicator);
  }
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  grouping = true;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  grouping = false;
  for (NcclComm* communicator : group_aborts) {
    communicator->aborted = true;
  }
  for (NcclComm* communicator : group_aborts) {
    reclaim(*communicator);
  }
  group_aborts.clear();
  return kNcclSuccess;
}

NcclResult ncclMemAlloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  fakecudart_stands_for_gpu(*memory, bytes, 1);
  const std::lock_guard lock(world().mutex);
  world().memory[static_cast<char*>(*memory)] = bytes;
  return kNcclSuccess;
}

NcclResult ncclMemFree(void* memory) {
  const std::lock_guard lock(world().mutex);
  if (world().memory.erase(static_cast<char*>(memory)) == 0) {
    return violation("memory is freed that was not allocated");
  }
  fakecudart_stands_for_gpu(memory, 0, 0);
  std::free(memory);
  return kNcclSuccess;
}

NcclResult ncclCommRegister(NcclComm* communicator, void* memory, size_t bytes, void** handle) {
  if (const NcclResult checked = check(communicator); checked != kNcclSuccess) {
    return checked;
  }
  const std::lock_guard lock(world().mutex);
  const auto found = world().memory.find(static_cast<char*>(memory));
  if (found == world().memory.end() || bytes > found->second) {
    return violation("memory is registered that NCCL has not allocated");
  }
  communicator->registrations.insert(memory);
  *handle = memory;
  return kNcclSuccess;
}

NcclResult ncclCommDeregister(NcclComm* communicator, void* handle) {
  if (const NcclResult checked = check(communicator); checked != kNcclSuccess) {
    return checked;
  }
  return communicator->registrations.erase(handle) == 1
             ? kNcclSuccess
             : violation("memory is deregistered that was not registered");
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"
