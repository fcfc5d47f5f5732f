#include "tests/support/fake_cudart.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <unistd.h>

using namespace pdjob::kvtransfer;

namespace {

constexpr GpuResult kNoDevice{100};
constexpr GpuResult kInvalidDevice{101};
constexpr GpuResult kNotPermitted{800};

std::atomic<int> objects = 0;
std::atomic<int> violations = 0;
thread_local int current_device = 0;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<int>(std::strtol(value, nullptr, 10));
}

// Outlives the stream's destruction until its work is done, as CUDA has it.
struct StreamState {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool working = false;
  bool destroyed = false;
  bool forbidden = false;
};

void run_stream(const std::shared_ptr<StreamState>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->destroyed || !state->work.empty(); });
    if (state->work.empty()) {
      return;
    }
    const std::function<void()> next = std::move(state->work.front());
    state->work.pop_front();
    state->working = true;
    lock.unlock();
    next();
    lock.lock();
    state->working = false;
  }
}

}  // namespace

namespace pdjob::kvtransfer {

struct GpuStream {
  std::shared_ptr<StreamState> state = std::make_shared<StreamState>();
};
struct GpuEvent {
  std::shared_ptr<std::atomic<int>> pending = std::make_shared<std::atomic<int>>(0);
};

}  // namespace pdjob::kvtransfer

namespace {

GpuResult enqueue(GpuStream* stream, std::function<void()> work, const char* what) {
  const std::lock_guard lock(stream->state->mutex);
  if (stream->state->forbidden) {
    ++violations;
    std::fprintf(stderr, "fake CUDA: %s while NCCL has a call in progress on the stream\n", what);
    return kNotPermitted;
  }
  stream->state->work.push_back(std::move(work));
  stream->state->changed.notify_one();
  return kGpuSuccess;
}

}  // namespace

extern "C" {

void fakecudart_launch(GpuStream* stream, void (*kernel)(void*), void* argument) {
  enqueue(stream, [=] { kernel(argument); }, "a kernel");
}

void fakecudart_forbid(GpuStream* stream, int forbidden) {
  const std::lock_guard lock(stream->state->mutex);
  stream->state->forbidden = forbidden != 0;
}

int fakecudart_current_device() { return current_device; }
int fakecudart_violations() { return violations; }
int fakecudart_objects() { return objects; }

// NOLINTBEGIN(readability-identifier-naming): the names of the real library.

GpuResult cudaGetDeviceCount(int* count) {
  *count = setting("FAKE_CUDA_DEVICES", 64);
  return *count == 0 ? kNoDevice : kGpuSuccess;
}

GpuResult cudaSetDevice(int device) {
  if (device >= setting("FAKE_CUDA_DEVICES", 64)) {
    return kInvalidDevice;
  }
  current_device = device;
  return kGpuSuccess;
}

GpuResult cudaStreamCreateWithFlags(GpuStream** stream, unsigned /*flags*/) {
  *stream = new GpuStream;
  ++objects;
  std::thread(run_stream, (*stream)->state).detach();
  return kGpuSuccess;
}

GpuResult cudaStreamQuery(GpuStream* stream) {
  const std::lock_guard lock(stream->state->mutex);
  return stream->state->work.empty() && !stream->state->working ? kGpuSuccess : kGpuNotReady;
}

GpuResult cudaStreamDestroy(GpuStream* stream) {
  {
    const std::lock_guard lock(stream->state->mutex);
    stream->state->destroyed = true;
    stream->state->changed.notify_one();
  }
  --objects;
  delete stream;
  return kGpuSuccess;
}

GpuResult cudaEventCreateWithFlags(GpuEvent** event, unsigned /*flags*/) {
  *event = new GpuEvent;
  ++objects;
  return kGpuSuccess;
}

GpuResult cudaEventRecord(GpuEvent* event, GpuStream* stream) {
  ++*event->pending;
  const GpuResult result = enqueue(stream, [pending = event->pending] { --*pending; }, "an event");
  if (result != kGpuSuccess) {
    --*event->pending;
  }
  return result;
}

GpuResult cudaEventQuery(GpuEvent* event) {
  return *event->pending == 0 ? kGpuSuccess : kGpuNotReady;
}

GpuResult cudaEventDestroy(GpuEvent* event) {
  --objects;
  delete event;
  return kGpuSuccess;
}

GpuResult cudaMemcpyAsync(void* to, const void* from, size_t bytes, GpuCopyKind /*kind*/,
                          GpuStream* stream) {
  const int delay = setting("FAKE_CUDA_COPY_DELAY_US", 0);
  return enqueue(
      stream,
      [=] {
        ::usleep(static_cast<unsigned>(delay));
        std::memcpy(to, from, bytes);
      },
      "a copy");
}

GpuResult cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  ++objects;
  return kGpuSuccess;
}

GpuResult cudaFreeHost(void* memory) {
  std::free(memory);
  --objects;
  return kGpuSuccess;
}

const char* cudaGetErrorString(GpuResult result) {
  switch (static_cast<unsigned>(result)) {
    case kGpuSuccess:
      return "no error";
    case kGpuNotReady:
      return "device not ready";
    case 100:
      return "no CUDA-capable device is detected";
    default:
      return "unknown error";
  }
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"
