#include "tests/support/fake_cudart.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// row_sum_kernel.cu, compiled as C++: a block is one thread.
namespace {

struct Place {
  unsigned x = 0, y = 0;
};
thread_local Place blockIdx;
thread_local Place gridDim;
constexpr Place threadIdx;
constexpr Place blockDim{.x = 1, .y = 1};

}  // namespace
// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __device__
#define __global__
#define __shared__
#define __syncthreads()
// NOLINTEND(bugprone-reserved-identifier)
#include "gpu/row_sum_kernel.cu"

using namespace pdjob;

namespace {

constexpr GpuResult kInvalidValue{1};
constexpr GpuResult kOutOfMemory{2};
constexpr GpuResult kInvalidImage{200};
constexpr GpuResult kInvalidHandle{400};
constexpr GpuResult kNotFound{500};
constexpr GpuResult kIllegalAddress{700};
constexpr GpuResult kNotInitialised{3};
constexpr GpuResult kNoDevice{100};
constexpr GpuResult kInvalidDevice{101};
constexpr GpuResult kNotPermitted{800};

std::atomic<int> objects = 0;
std::atomic<int> violations = 0;
std::atomic<long long> host_bytes = 0;
thread_local int current_device = 0;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<int>(std::strtol(value, nullptr, 10));
}

// Outlives the stream's destruction until its work is done, as in CUDA.
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

namespace pdjob {

struct GpuStream {
  std::shared_ptr<StreamState> state = std::make_shared<StreamState>();
};
struct GpuModule {
  std::string text;
};
struct GpuFunction {};
struct GpuEvent {
  std::shared_ptr<std::atomic<int>> pending = std::make_shared<std::atomic<int>>(0);
};

}  // namespace pdjob

namespace {

std::mutex streams_mutex;
std::vector<std::weak_ptr<StreamState>> streams;

void wait_for_all_work() {
  std::vector<std::shared_ptr<StreamState>> alive;
  {
    const std::lock_guard lock(streams_mutex);
    for (const auto& stream : streams) {
      alive.push_back(stream.lock());
    }
  }
  for (const auto& state : alive) {
    const auto busy = [&] {
      const std::lock_guard lock(state->mutex);
      return state->working || !state->work.empty();
    };
    while (state != nullptr && busy()) {
      ::usleep(1000);
    }
  }
}

// The process that used CUDA first.
pid_t user = 0;
bool forked_after_use() {
  if (user == 0) {
    user = ::getpid();
  }
  return user != ::getpid();
}

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

// --- memory that has handles

constexpr size_t kGranularity = size_t{2} << 20;
const char* const kMemoryName = "fake-gpu";

struct Allocation {
  explicit Allocation(int memfd, size_t size) : fd(memfd), bytes(size) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { ::close(fd); }
  const int fd;
  const size_t bytes;
};

// The pages behind an address range. Only copies and kernels use them.
struct Mapping {
  Mapping(std::shared_ptr<Allocation> memory, GpuAddress begin, size_t size)
      : allocation(std::move(memory)),
        address(begin),
        bytes(size),
        pages(static_cast<std::byte*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, allocation->fd, 0))) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(pages, bytes); }
  // Gives the CPU access at the addresses themselves.
  void show() const { map_at_address(PROT_READ | PROT_WRITE, MAP_SHARED, allocation->fd); }
  void hide() const { map_at_address(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1); }
  void map_at_address(int protection, int flags, int fd) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const at = reinterpret_cast<void*>(address);
    void* const there = ::mmap(at, bytes, protection, flags | MAP_FIXED, fd, 0);
    if (there == MAP_FAILED) {
      std::abort();
    }
  }
  const std::shared_ptr<Allocation> allocation;
  const GpuAddress address;
  const size_t bytes;
  std::byte* const pages;
  bool accessible = false;
  std::atomic<int> users = 0;  // Copies and kernels that still run.
};

std::mutex memory_mutex;
std::map<GpuHandle, std::shared_ptr<Allocation>> handles;
std::map<GpuAddress, size_t> reservations;
std::map<GpuAddress, std::shared_ptr<Mapping>> mappings;
std::map<GpuAddress, size_t> stand_ins;
GpuHandle handles_made = 0;

void violate(const char* how) {
  ++violations;
  std::fprintf(stderr, "fake CUDA: %s\n", how);
}

template <class Map>
auto holder_of(Map& map, GpuAddress address) {
  auto found = map.upper_bound(address);
  return found == map.begin() ? map.end() : std::prev(found);
}

// Resolves an address argument to its pages, and marks them as in use for this object's lifetime.
struct Pages {
  Pages() = default;
  Pages(const void* at, size_t bytes)
      : pages(const_cast<std::byte*>(static_cast<const std::byte*>(at))) {
    const std::lock_guard lock(memory_mutex);
    const auto address = reinterpret_cast<GpuAddress>(at);
    const auto reservation = holder_of(reservations, address);
    if (reservation == reservations.end() || address >= reservation->first + reservation->second) {
      return;  // Host memory.
    }
    const auto found = holder_of(mappings, address);
    if (found == mappings.end() || !found->second->accessible ||
        address + bytes > found->first + found->second->bytes) {
      pages = nullptr;
      violate("work on memory that is not mapped");
      return;
    }
    mapping = found->second;
    ++mapping->users;
    pages = mapping->pages + (address - mapping->address);
  }
  Pages(Pages&& other) noexcept
      : mapping(std::move(other.mapping)), pages(std::exchange(other.pages, nullptr)) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (mapping != nullptr) {
      --mapping->users;
    }
  }
  std::shared_ptr<Mapping> mapping;
  std::byte* pages = nullptr;
};

bool is_in_gpu(const Pages& pages) {
  const std::lock_guard lock(memory_mutex);
  const auto address = reinterpret_cast<GpuAddress>(pages.pages);
  const auto found = holder_of(stand_ins, address);
  return pages.mapping != nullptr ||
         (found != stand_ins.end() && address < found->first + found->second);
}

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

GpuResult enqueue_copies(const std::vector<Copy>& copies, GpuStream* stream) {
  struct Ends {
    Pages to, from;
    size_t bytes;
  };
  auto ends = std::make_shared<std::vector<Ends>>();
  for (const Copy& copy : copies) {
    ends->push_back({Pages(copy.to, copy.bytes), Pages(copy.from, copy.bytes), copy.bytes});
    if (ends->back().to.pages == nullptr || ends->back().from.pages == nullptr) {
      return kIllegalAddress;
    }
    if (is_in_gpu(ends->back().to) != is_in_gpu(ends->back().from)) {
      host_bytes += static_cast<long long>(copy.bytes);
    }
  }
  const int delay = setting("FAKE_CUDA_COPY_DELAY_US", 0);
  return enqueue(
      stream,
      [=]() {
        ::usleep(static_cast<unsigned>(delay));
        for (const Ends& each : *ends) {
          std::memcpy(each.to.pages, each.from.pages, each.bytes);
        }
        ends->clear();
      },
      "a copy");
}

// NOLINTBEGIN(readability-identifier-naming): the names of the real library.

GpuResult cuMemGetAllocationGranularity(size_t* bytes, const GpuAllocation* wanted, unsigned) {
  *bytes = kGranularity;
  return wanted->type == 1 && wanted->location.type == kGpuLocationDevice ? kGpuSuccess
                                                                          : kInvalidValue;
}

GpuResult keep(std::shared_ptr<Allocation> allocation, GpuHandle* handle) {
  const std::lock_guard lock(memory_mutex);
  *handle = ++handles_made;
  handles[*handle] = std::move(allocation);
  ++objects;
  return kGpuSuccess;
}

GpuResult cuMemCreate(GpuHandle* handle, size_t bytes, const GpuAllocation* wanted,
                      unsigned long long flags) {
  if (bytes == 0 || bytes % kGranularity != 0 || wanted->type != 1 || flags != 0 ||
      wanted->location.type != kGpuLocationDevice ||
      wanted->location.id >= setting("FAKE_CUDA_DEVICES", 64)) {
    return kInvalidValue;
  }
  const int fd = ::memfd_create(kMemoryName, MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return kOutOfMemory;
  }
  return keep(std::make_shared<Allocation>(fd, bytes), handle);
}

GpuResult cuMemRelease(GpuHandle handle) {
  const std::lock_guard lock(memory_mutex);
  if (handles.erase(handle) == 0) {
    violate("a handle that is not there is released");
    return kInvalidHandle;
  }
  --objects;
  return kGpuSuccess;
}

GpuResult cuMemExportToShareableHandle(void* fd, GpuHandle handle, unsigned type,
                                       unsigned long long flags) {
  const std::lock_guard lock(memory_mutex);
  const auto found = handles.find(handle);
  if (found == handles.end() || type != kGpuHandleFd || flags != 0) {
    return kInvalidValue;
  }
  *static_cast<int*>(fd) = ::fcntl(found->second->fd, F_DUPFD_CLOEXEC, 0);
  return kGpuSuccess;
}

GpuResult cuMemImportFromShareableHandle(GpuHandle* handle, void* fd_as_pointer, unsigned type) {
  const int fd = static_cast<int>(reinterpret_cast<uintptr_t>(fd_as_pointer));
  char name[64] = {};
  struct stat file{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (type != kGpuHandleFd || ::readlink(link.c_str(), name, sizeof name - 1) < 0 ||
      std::string(name).rfind("/memfd:" + std::string(kMemoryName), 0) != 0 ||
      ::fstat(fd, &file) != 0) {
    return kInvalidValue;
  }
  return keep(std::make_shared<Allocation>(::fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                           static_cast<size_t>(file.st_size)),
              handle);
}

GpuResult cuMemAddressReserve(GpuAddress* address, size_t bytes, size_t /*alignment*/,
                              GpuAddress /*wanted*/, unsigned long long flags) {
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) {
    return kInvalidValue;
  }
  void* const begin =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return kOutOfMemory;
  }
  const std::lock_guard lock(memory_mutex);
  *address = reinterpret_cast<GpuAddress>(begin);
  reservations[*address] = bytes;
  ++objects;
  return kGpuSuccess;
}

GpuResult cuMemAddressFree(GpuAddress address, size_t bytes) {
  const std::lock_guard lock(memory_mutex);
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second != bytes || mappings.contains(address)) {
    violate("addresses are freed that are not reserved, or still mapped");
    return kInvalidValue;
  }
  reservations.erase(found);
  ::munmap(reinterpret_cast<void*>(address), bytes);  // NOLINT(performance-no-int-to-ptr)
  --objects;
  return kGpuSuccess;
}

GpuResult cuMemMap(GpuAddress address, size_t bytes, size_t offset, GpuHandle handle,
                   unsigned long long flags) {
  const std::lock_guard lock(memory_mutex);
  const auto found = handles.find(handle);
  const auto reservation = reservations.find(address);
  if (found == handles.end() || reservation == reservations.end() || offset != 0 || flags != 0 ||
      bytes % kGranularity != 0 || bytes > reservation->second || bytes > found->second->bytes ||
      mappings.contains(address)) {
    return kInvalidValue;
  }
  mappings[address] = std::make_shared<Mapping>(found->second, address, bytes);
  ++objects;
  return kGpuSuccess;
}

GpuResult cuMemUnmap(GpuAddress address, size_t bytes) {
  const std::lock_guard lock(memory_mutex);
  const auto found = mappings.find(address);
  if (found == mappings.end() || found->second->bytes != bytes) {
    violate("memory is unmapped that is not mapped");
    return kInvalidValue;
  }
  if (found->second->users > 0) {
    violate("memory is unmapped while work on it is under way");
  }
  found->second->hide();
  mappings.erase(found);
  --objects;
  return kGpuSuccess;
}

GpuResult cuMemSetAccess(GpuAddress address, size_t bytes, const GpuAccess* access, size_t count) {
  const std::lock_guard lock(memory_mutex);
  const auto found = mappings.find(address);
  if (found == mappings.end() || found->second->bytes != bytes || count != 1 ||
      access->location.type != kGpuLocationDevice || access->flags != 3) {
    return kInvalidValue;
  }
  found->second->accessible = true;
  if (setting("FAKE_CUDA_UNIFIED", 0) != 0) {
    found->second->show();
  }
  return kGpuSuccess;
}

GpuResult cuModuleLoadData(GpuModule** module, const void* image) {
  const std::string text = static_cast<const char*>(image);
  if (text.find(".version") == std::string::npos) {
    return kInvalidImage;
  }
  *module = new GpuModule{text};
  ++objects;
  return kGpuSuccess;
}

GpuResult cuModuleUnload(GpuModule* module) {
  delete module;
  --objects;
  return kGpuSuccess;
}

GpuResult cuModuleGetFunction(GpuFunction** function, GpuModule* module, const char* name) {
  static GpuFunction row_sum;
  if (module->text.find(".visible .entry " + std::string(name) + "(") == std::string::npos ||
      std::string(name) != "pdjob_row_sum") {
    return kNotFound;
  }
  *function = &row_sum;
  return kGpuSuccess;
}

// The windows of a kernel, as the CPU reaches their rows; these stay mapped until the kernel ends.
struct ReachedWindows {
  std::vector<Pages> in_use;
  std::vector<RowSumWindow> windows;

  // Null: the rows are not mapped.
  unsigned char* row_0(const unsigned char* base, size_t before, size_t bytes) {
    std::byte* const pages = in_use.emplace_back(base + before, bytes).pages;
    return pages == nullptr ? nullptr : reinterpret_cast<unsigned char*>(pages) - before;
  }
};

void run_row_sum(const ReachedWindows& reached, Word first, Word rows, Word* sums, Place grid) {
  gridDim = grid;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      pdjob_row_sum(reached.windows.data(), first, rows, sums);
    }
  }
}

GpuResult cuLaunchKernel(GpuFunction* /*function*/, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, GpuStream* stream, void** arguments, void** extra) {
  if (grid_x == 0 || grid_y == 0 || grid_y > 65535 || grid_z != 1 || block_x != 32 ||
      block_y != 8 || block_z != 1 || shared_bytes != 0 || extra != nullptr) {
    return kInvalidValue;
  }
  auto* const windows = *static_cast<RowSumWindow**>(arguments[0]);
  const Word first = *static_cast<Word*>(arguments[1]);
  const Word rows = *static_cast<Word*>(arguments[2]);
  Word* const sums = *static_cast<Word**>(arguments[3]);
  auto reached = std::make_shared<ReachedWindows>();
  for (unsigned i = 0; i < grid_y; ++i) {
    RowSumWindow window = windows[i];
    const bool copies = window.to != nullptr;
    const size_t before = first * window.row_bytes, bytes = rows * window.row_bytes;
    window.base = reached->row_0(window.base, before, bytes);
    window.to = copies ? reached->row_0(window.to, before, bytes) : nullptr;
    if (window.base == nullptr || (copies && window.to == nullptr)) {
      return kIllegalAddress;
    }
    reached->windows.push_back(window);
  }
  const char* const hang_file = std::getenv("FAKE_CUDA_HANG_FILE");
  while (hang_file != nullptr && ::access(hang_file, F_OK) == 0) {
    ::usleep(10'000);
  }
  const int delay = setting("FAKE_CUDA_COPY_DELAY_US", 0);
  return enqueue(
      stream,
      [=] {
        ::usleep(static_cast<unsigned>(delay));
        run_row_sum(*reached, first, rows, sums, {grid_x, grid_y});
        reached->in_use.clear();
      },
      "a kernel");
}

// NOLINTEND(readability-identifier-naming)

void* driver_function(const std::string& symbol) {
  static const std::map<std::string, void*> functions = {
#define PDJOB_FUNCTION(name) {#name, reinterpret_cast<void*>(name)}
      PDJOB_FUNCTION(cuMemGetAllocationGranularity),
      PDJOB_FUNCTION(cuMemCreate),
      PDJOB_FUNCTION(cuMemRelease),
      PDJOB_FUNCTION(cuMemExportToShareableHandle),
      PDJOB_FUNCTION(cuMemImportFromShareableHandle),
      PDJOB_FUNCTION(cuMemAddressReserve),
      PDJOB_FUNCTION(cuMemAddressFree),
      PDJOB_FUNCTION(cuMemMap),
      PDJOB_FUNCTION(cuMemUnmap),
      PDJOB_FUNCTION(cuMemSetAccess),
      PDJOB_FUNCTION(cuModuleLoadData),
      PDJOB_FUNCTION(cuModuleUnload),
      PDJOB_FUNCTION(cuModuleGetFunction),
      PDJOB_FUNCTION(cuLaunchKernel),
  };
  const auto found = functions.find(symbol);
  return found == functions.end() ? nullptr : found->second;
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
long long fakecudart_host_bytes() { return host_bytes; }
void fakecudart_stands_for_gpu(void* memory, size_t bytes, int stands) {
  const std::lock_guard lock(memory_mutex);
  if (stands != 0) {
    stand_ins[reinterpret_cast<GpuAddress>(memory)] = bytes;
  } else {
    stand_ins.erase(reinterpret_cast<GpuAddress>(memory));
  }
}

// NOLINTBEGIN(readability-identifier-naming): the names of the real library.

GpuResult cudaGetDeviceCount(int* count) {
  if (forked_after_use()) {
    return kNotInitialised;
  }
  *count = setting("FAKE_CUDA_DEVICES", 64);
  return *count == 0 ? kNoDevice : kGpuSuccess;
}

GpuResult cudaSetDevice(int device) {
  if (forked_after_use()) {
    return kNotInitialised;
  }
  if (device >= setting("FAKE_CUDA_DEVICES", 64)) {
    return kInvalidDevice;
  }
  current_device = device;
  return kGpuSuccess;
}

GpuResult cudaStreamCreateWithFlags(GpuStream** stream, unsigned /*flags*/) {
  *stream = new GpuStream;
  ++objects;
  {
    const std::lock_guard lock(streams_mutex);
    std::erase_if(streams, [](const auto& each) { return each.expired(); });
    streams.push_back((*stream)->state);
  }
  std::thread worker(run_stream, (*stream)->state);
  ::pthread_setname_np(worker.native_handle(), "fake-stream");
  worker.detach();
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
  return enqueue_copies({{to, from, bytes}}, stream);
}

GpuResult cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                               size_t count, GpuCopyAttributes* attributes, size_t* first,
                               size_t attributes_count, GpuStream* stream) {
  if (count == 0 || attributes_count != 1 || *first != 0 || attributes->source_order != 1 ||
      stream == nullptr) {
    return kInvalidValue;
  }
  std::vector<Copy> copies;
  for (size_t i = count; i > 0; --i) {
    if (bytes[i - 1] == 0) {
      return kInvalidValue;
    }
    copies.push_back({to[i - 1], from[i - 1], bytes[i - 1]});
  }
  return enqueue_copies(copies, stream);
}

GpuResult cudaRuntimeGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return kGpuSuccess;
}

GpuResult cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                           unsigned long long /*flags*/, unsigned* query) {
  *function = version >= 10020 ? driver_function(symbol) : nullptr;
  *query = *function == nullptr ? 1 : 0;
  return kGpuSuccess;
}

GpuResult cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  ++objects;
  return kGpuSuccess;
}

GpuResult cudaFreeHost(void* memory) {
  wait_for_all_work();
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
