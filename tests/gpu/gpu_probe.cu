// gpu_probe: the rules of the hardware and its driver that transport cuda_ipc relies on, without
// any code of pdjob. Two processes share one GPU's memory, as kvtransfer/cuda_ipc does.
//
//   gpu_probe             rates of copies, and writes that land after a sender was killed
//   gpu_probe sender FD   the other process. It is executed, never forked after CUDA was used.
//
// Rates are of bytes moved once, the best of seven. Exit: 0, or 3 after a line with "FAILS".
#include <cuda.h>
#include <cuda_runtime.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace {

using Word = unsigned long long;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{8} << 30;
constexpr size_t kWindows = 64, kPieces = 64 * 60;  // A model's windows, and one prompt's pieces.
constexpr Word kSent = 0xABABABABABABABABULL;
constexpr int kKills = 8, kQueuedCopies = 400, kPeerMilliseconds = 30'000;

[[noreturn]] void fail(const char* what, const char* why) {
  std::printf("probe: %s FAILS: %s\n", what, why);
  std::exit(3);
}

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    fail(what, cudaGetErrorString(result));
  }
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    fail(what, ("the driver says " + std::to_string(static_cast<int>(result))).c_str());
  }
}

#define CHECK(call) check(call, #call)

// The driver's functions by name: a program that is linked with the driver starts on no machine
// without one.
template <class Function>
Function* find(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state{};
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &state));
  if (state != cudaDriverEntryPointSuccess) {
    fail(name, "the driver has no such function");
  }
  return reinterpret_cast<Function*>(found);
}
#define FIND(name) find<decltype(name)>(#name)

CUmemAllocationProp properties() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return wanted;
}

char* map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  CHECK(FIND(cuMemAddressReserve)(&address, kBytes, 0, 0, 0));
  CHECK(FIND(cuMemMap)(address, kBytes, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(FIND(cuMemSetAccess)(address, kBytes, &access, 1));
  return reinterpret_cast<char*>(address);
}

// `fd`: becomes what another process imports, or nullptr.
char* allocate(int* fd) {
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle handle = 0;
  CHECK(FIND(cuMemCreate)(&handle, kBytes, &wanted, 0));
  if (fd != nullptr) {
    CHECK(FIND(cuMemExportToShareableHandle)(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
  }
  return map(handle);
}

char* import(int fd) {
  CUmemGenericAllocationHandle handle = 0;
  CHECK(FIND(cuMemImportFromShareableHandle)(&handle,
                                             reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  return map(handle);
}

__global__ void fill(Word* words, size_t count, Word value) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    words[i] = value;
  }
}

__global__ void count_others(const Word* words, size_t count, Word value, Word* others) {
  Word found = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    found += words[i] != value ? 1 : 0;
  }
  if (found != 0) {
    atomicAdd(others, found);
  }
}

__global__ void copy(uint4* to, const uint4* from, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    to[i] = from[i];
  }
}

__device__ Word mixed(ulonglong2 words, size_t place) {
  return (words.x ^ (words.x >> 33)) * 0xFF51AFD7ED558CCDULL + words.y * place;
}

// What a fused kernel would do: copies, and sums what it has read. Beside `copy` it says what the
// sum adds; beside a batch and a sum of its own, whether fusing pays.
__global__ void copy_and_sum(ulonglong2* to, const ulonglong2* from, size_t count, Word* sum) {
  Word total = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const ulonglong2 words = from[i];
    to[i] = words;
    total += mixed(words, i);
  }
  atomicAdd(sum, total);
}

__global__ void sum_only(const ulonglong2* from, size_t count, Word* sum) {
  Word total = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const ulonglong2 words = from[i];
    total += mixed(words, i);
  }
  atomicAdd(sum, total);
}

class Copies {
 public:
  Copies() {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&word_, sizeof(Word)));
  }

  void set(char* memory, Word value) {
    fill<<<2048, 512, 0, stream_>>>(reinterpret_cast<Word*>(memory), kBytes / sizeof(Word), value);
    CHECK(cudaStreamSynchronize(stream_));
  }

  // Returns how many words of `memory` are not `value`.
  Word others(const char* memory, Word value) {
    CHECK(cudaMemsetAsync(word_, 0, sizeof(Word), stream_));
    count_others<<<2048, 512, 0, stream_>>>(reinterpret_cast<const Word*>(memory),
                                            kBytes / sizeof(Word), value, word_);
    Word found = 0;
    CHECK(cudaMemcpyAsync(&found, word_, sizeof found, cudaMemcpyDefault, stream_));
    CHECK(cudaStreamSynchronize(stream_));
    return found;
  }

  cudaError_t batch(char* to, const char* from, size_t pieces, unsigned flags = 0) {
    const size_t each = kBytes / pieces;
    std::vector<const void*> targets, sources;
    for (size_t i = 0; i < pieces; ++i) {
      targets.push_back(to + i * each);
      sources.push_back(from + i * each);
    }
    const std::vector<size_t> sizes(pieces, each);
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = flags;
    size_t first = 0;
    return cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), pieces, &attributes,
                                &first, 1, stream_);
  }

  cudaError_t by_kernel(char* to, const char* from) {
    copy<<<2048, 512, 0, stream_>>>(reinterpret_cast<uint4*>(to),
                                    reinterpret_cast<const uint4*>(from), kBytes / sizeof(uint4));
    return cudaGetLastError();
  }

  void measure(const char* where, char* to, const char* from) {
    using Pair = ulonglong2;
    const auto* pairs = reinterpret_cast<const Pair*>(from);
    timed(where, "cudaMemcpyBatchAsync, 64 pieces", [&] { return batch(to, from, kWindows); });
    timed(where, "the same, beside computing", [&] {
      return batch(to, from, kWindows, cudaMemcpyFlagPreferOverlapWithCompute);
    });
    timed(where, "cudaMemcpyBatchAsync, 3840 pieces", [&] { return batch(to, from, kPieces); });
    timed(where, "cudaMemcpyAsync",
          [&] { return cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream_); });
    timed(where, "a kernel copies", [&] { return by_kernel(to, from); });
    timed(where, "a kernel copies and sums", [&] {
      copy_and_sum<<<2048, 512, 0, stream_>>>(reinterpret_cast<Pair*>(to), pairs,
                                              kBytes / sizeof(Pair), word_);
      return cudaGetLastError();
    });
    timed(where, "a kernel sums", [&] {
      sum_only<<<2048, 512, 0, stream_>>>(pairs, kBytes / sizeof(Pair), word_);
      return cudaGetLastError();
    });
  }

 private:
  template <class Body>
  void timed(const char* where, const char* what, Body body) {
    cudaEvent_t begin{}, end{};
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    float best = 1e9F;
    for (int round = 0; round < 7; ++round) {
      CHECK(cudaEventRecord(begin, stream_));
      check(body(), what);
      CHECK(cudaEventRecord(end, stream_));
      CHECK(cudaEventSynchronize(end));
      float milliseconds = 0;
      CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
      best = std::min(best, milliseconds);
    }
    std::printf("probe: %s: %-36s %6.0f GB/s\n", where, what, kBytes / (best * 1e6));
  }

  cudaStream_t stream_ = nullptr;
  Word* word_ = nullptr;
};

// A message of one byte, with room for a descriptor.
struct DescriptorMessage {
  char byte = 0;
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec content{&byte, 1};
  msghdr message{};

  DescriptorMessage() {
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

void send_descriptor(int link, int fd) {
  DescriptorMessage out;
  cmsghdr* header = CMSG_FIRSTHDR(&out.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(link, &out.message, 0) != 1) {
    fail("sendmsg", std::strerror(errno));
  }
}

int receive_descriptor(int link) {
  DescriptorMessage in;
  if (recvmsg(link, &in.message, 0) != 1 || CMSG_FIRSTHDR(&in.message) == nullptr) {
    fail("recvmsg", "no descriptor came");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&in.message)), sizeof fd);
  return fd;
}

char hear(int link) {
  char word = 0;
  return read(link, &word, 1) == 1 ? word : '\0';
}

void say(int link, char word) {
  if (write(link, &word, 1) != 1) {
    fail("write", std::strerror(errno));
  }
}

// Until the link ends. Orders: 'r' rates; 'b' batches of copies that are queued for about a
// second, 'k' the same by kernels.
int send(int link) {
  const int fd = receive_descriptor(link);
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  char *peers = import(fd), *own = allocate(nullptr);
  Copies copies;
  copies.set(own, kSent);
  // Linux closes a dying process's descriptors from the last to the first. Links of pdjob are
  // opened after CUDA has started, so `late` is in their place.
  const int late = receive_descriptor(link);
  for (char order = hear(link); order != 0; order = hear(link)) {
    if (order == 'r') {
      copies.measure("another process's memory", peers, own);
      say(late, 'd');
      continue;
    }
    for (int i = 0; i < kQueuedCopies; ++i) {
      check(order == 'b' ? copies.batch(peers, own, kWindows) : copies.by_kernel(peers, own),
            "a queued copy");
      if (i == 2) {
        say(late, 'm');
      }
    }
    pause();  // To be killed.
  }
  return 0;
}

struct Sender {
  pid_t pid = -1;
  int link = -1, late = -1, pidfd = -1;

  Sender(const char* program, int memory_fd) {
    int early_pair[2], late_pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, early_pair) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, late_pair) != 0) {
      fail("socketpair", std::strerror(errno));
    }
    const int theirs = dup(early_pair[1]);  // Without close-on-exec.
    const std::string number = std::to_string(theirs);
    const char* words[] = {program, "sender", number.c_str(), nullptr};
    if (posix_spawn(&pid, program, nullptr, nullptr, const_cast<char**>(words), environ) != 0) {
      fail("posix_spawn", program);
    }
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    link = early_pair[0];
    late = late_pair[0];
    send_descriptor(link, memory_fd);
    send_descriptor(link, late_pair[1]);
    close(theirs);
    close(early_pair[1]);
    close(late_pair[1]);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender() {
    close(link);
    int status = 0;
    waitpid(pid, &status, 0);
    close(late);
    close(pidfd);
  }
};

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// What lands after the late link has closed is what a receiver would lose if it took the link's
// end for the end of all writes. What lands after the pidfd would break pdjob.
void kill_one(int number, const char* program, int memory_fd, char* memory, Copies& copies) {
  const bool by_kernels = number % 2 == 1;
  Sender sender(program, memory_fd);
  say(sender.link, by_kernels ? 'k' : 'b');
  if (hear(sender.late) != 'm') {
    fail("the sender", "ended before it was killed");
  }
  usleep(20'000 + 3'000 * number);
  kill(sender.pid, SIGKILL);
  const auto killed = Clock::now();
  pollfd watched[] = {{sender.late, POLLIN, 0}, {sender.link, POLLIN, 0}, {sender.pidfd, POLLIN, 0}};
  double ended[3] = {};
  double cleared = 0;
  for (int left = 3; left > 0;) {
    if (poll(watched, 3, kPeerMilliseconds) <= 0) {
      fail("the killed sender", "is not gone after 30 s");
    }
    for (int i = 0; i < 3; ++i) {
      if (watched[i].fd >= 0 && watched[i].revents != 0) {
        ended[i] = milliseconds_since(killed);
        watched[i].fd = -1;
        --left;
      }
    }
    if (ended[0] > 0 && cleared == 0) {
      copies.set(memory, 0);
      cleared = milliseconds_since(killed);
    }
  }
  const Word after_link = copies.others(memory, 0);
  copies.set(memory, 0);
  usleep(300'000);
  const Word after_pidfd = copies.others(memory, 0);
  std::printf(
      "probe: kill %d (%s): link's end %.2f ms, cleared %.2f, first descriptor %.2f, pidfd %.2f; "
      "words that landed after the link's end: %llu, after the pidfd: %llu%s\n",
      number, by_kernels ? "kernels" : "batches", ended[0], cleared, ended[1], ended[2], after_link,
      after_pidfd, after_pidfd != 0 ? "  <-- pdjob would be WRONG here" : "");
}

void print_facts() {
  int runtime = 0, driver = 0;
  cudaDeviceProp gpu{};
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaGetDeviceProperties(&gpu, 0));
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  const CUmemAllocationProp wanted = properties();
  size_t unit = 0;
  CHECK(FIND(cuMemGetAllocationGranularity)(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const auto has = [](CUdevice_attribute attribute) {
    int value = -1;
    FIND(cuDeviceGetAttribute)(&value, attribute, 0);
    return value;
  };
  std::printf(
      "probe: %s, %d SMs, sm_%d%d, runtime %d, driver %d, virtual memory %d, descriptors %d, "
      "fabric %d, unit %zu KiB\n",
      gpu.name, gpu.multiProcessorCount, gpu.major, gpu.minor, runtime, driver,
      has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
      has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
      has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED), unit >> 10);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 3) {
    return send(std::atoi(argv[2]));
  }
  print_facts();
  int fd = -1;
  char *shared = allocate(&fd), *own = allocate(nullptr);
  Copies copies;
  copies.measure("one process", own, shared);
  {
    Sender sender(argv[0], fd);
    say(sender.link, 'r');
    if (hear(sender.late) != 'd') {
      fail("the sender", "ended early");
    }
    std::printf("probe: words that are wrong after another process's copies: %llu of %zu\n",
                copies.others(shared, kSent), kBytes / sizeof(Word));
  }
  for (int number = 0; number < kKills; ++number) {
    kill_one(number, argv[0], fd, shared, copies);
  }
  std::printf("probe: end\n");
  return 0;
}
