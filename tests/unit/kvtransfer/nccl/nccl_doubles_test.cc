// The contract of libfakenccl.so and libfakecudart.so. Also how NcclApi and GpuApi report an
// unsuitable library.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "gpu/gpu_api.h"
#include "kvtransfer/nccl/nccl_api.h"
#include "tests/support/fake_cudart.h"
#include "tests/support/fake_nccl.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;

// Sets a variable of the doubles for one test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { ::unsetenv(name_); }

 private:
  const char* name_;
};

void sleep_a_little() { std::this_thread::sleep_for(milliseconds(1)); }

bool comes_true(const std::function<bool()>& condition,
                Duration timeout = std::chrono::seconds(20)) {
  for (const Instant deadline = real_now() + timeout; !condition(); sleep_a_little()) {
    if (real_now() >= deadline) {
      return false;
    }
  }
  return true;
}

const NcclApi& nccl() {
  static const NcclApi api = *NcclApi::open(PDJOB_FAKE_NCCL);
  return api;
}
const GpuApi& gpu() {
  static const GpuApi api = *GpuApi::open(PDJOB_FAKE_CUDART);
  return api;
}

// One end of a pair, with a stream and some memory. One thread uses it.
class End {
 public:
  explicit End(int device) : device_(device) {
    gpu().set_device(device);
    gpu().stream_create_with_flags(&stream, 0);
    nccl().mem_alloc(&memory, 1 << 16);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    if (communicator != nullptr) {
      nccl().comm_abort(communicator);
    }
    nccl().mem_free(memory);
    gpu().stream_destroy(stream);
  }

  NcclResult join(int rank, const NcclUniqueId& id) {
    gpu().set_device(device_);
    peer_ = 1 - rank;
    NcclCommConfig config;
    config.blocking = 0;
    config.max_ctas = 4;
    return nccl().comm_init_rank_config(&communicator, 2, id, rank, &config);
  }
  NcclResult state() const {
    NcclResult result = kNcclSuccess;
    const NcclResult asked = nccl().comm_get_async_error(communicator, &result);
    return asked == kNcclSuccess ? result : asked;
  }
  bool becomes(NcclResult wanted) const {
    return comes_true([&] { return state() == wanted; });
  }
  NcclResult send(size_t bytes) const {
    return nccl().send(memory, bytes, kNcclUint8, peer_, communicator, stream);
  }
  NcclResult receive(size_t bytes) const {
    return nccl().recv(memory, bytes, kNcclUint8, peer_, communicator, stream);
  }
  bool is_idle() const { return gpu().stream_query(stream) == kGpuSuccess; }
  bool becomes_idle() const {
    return comes_true([&] { return is_idle(); });
  }
  void abort() { nccl().comm_abort(std::exchange(communicator, nullptr)); }
  char& byte(size_t at) const { return static_cast<char*>(memory)[at]; }

  NcclComm* communicator = nullptr;
  GpuStream* stream = nullptr;
  void* memory = nullptr;

 private:
  int device_;
  int peer_ = 0;
};

// Two devices of this process, driven by this thread.
class FakePair : public testing::Test {
 protected:
  void SetUp() override {
    NcclUniqueId id;
    ASSERT_EQ(nccl().get_unique_id(&id), kNcclSuccess);
    ASSERT_EQ(a_.join(0, id), kNcclInProgress);
    ASSERT_EQ(b_.join(1, id), kNcclInProgress);
    ASSERT_TRUE(a_.becomes(kNcclSuccess));
    ASSERT_TRUE(b_.becomes(kNcclSuccess));
    violations_ = fakenccl_violations();
  }
  int new_violations() const { return fakenccl_violations() - violations_; }

  End a_{0}, b_{1};
  int violations_ = 0;
};

TEST_F(FakePair, MovesBytesInTheOrderOfTheStream) {
  std::vector<char> host(1000, 'h');
  gpu().memcpy_async(a_.memory, host.data(), host.size(), kGpuHostToDevice, a_.stream);
  ASSERT_EQ(a_.send(host.size()), kNcclSuccess);
  ASSERT_EQ(b_.receive(host.size()), kNcclSuccess);
  std::vector<char> back(1000);
  gpu().memcpy_async(back.data(), b_.memory, back.size(), kGpuDeviceToHost, b_.stream);
  GpuEvent* event = nullptr;
  gpu().event_create_with_flags(&event, 0);
  gpu().event_record(event, b_.stream);
  EXPECT_TRUE(comes_true([&] { return gpu().event_query(event) == kGpuSuccess; }));
  EXPECT_EQ(back, host);
  gpu().event_destroy(event);
}

TEST_F(FakePair, ReceiveWithoutSendSpinsUntilItsAbort) {
  ASSERT_EQ(b_.receive(10), kNcclSuccess);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(b_.is_idle());
  EXPECT_EQ(b_.state(), kNcclSuccess);
  b_.abort();
  EXPECT_TRUE(b_.becomes_idle());
}

TEST_F(FakePair, DifferentCountsAreAViolation) {
  ASSERT_EQ(a_.send(10), kNcclSuccess);
  ASSERT_EQ(b_.receive(11), kNcclSuccess);
  EXPECT_TRUE(b_.becomes(kNcclInternalError));
  EXPECT_EQ(new_violations(), 1);
}

TEST_F(FakePair, SecondThreadIsAViolation) {
  std::thread([&] { EXPECT_EQ(a_.send(1), kNcclInvalidUsage); }).join();
  EXPECT_EQ(new_violations(), 1);
}

TEST_F(FakePair, UseAfterAbortIsAViolation) {
  NcclComm* const gone = a_.communicator;
  a_.abort();
  NcclResult state = kNcclSuccess;
  EXPECT_EQ(nccl().comm_get_async_error(gone, &state), kNcclInvalidUsage);
  EXPECT_EQ(nccl().comm_abort(gone), kNcclInvalidUsage);
  EXPECT_EQ(new_violations(), 2);
}

TEST_F(FakePair, CallInProgressTakesPollsAndForbidsTheStream) {
  const Setting setting("FAKE_NCCL_IN_PROGRESS", "3");
  ASSERT_EQ(a_.send(10), kNcclInProgress);
  EXPECT_NE(gpu().memcpy_async(a_.memory, "x", 1, kGpuHostToDevice, a_.stream), kGpuSuccess);
  EXPECT_EQ(a_.send(10), kNcclInvalidUsage);
  EXPECT_EQ(new_violations(), 1);
  for (int poll = 0; poll < 3; ++poll) {
    EXPECT_EQ(a_.state(), kNcclInProgress);
  }
  EXPECT_EQ(a_.state(), kNcclSuccess);
  ASSERT_EQ(b_.receive(10), kNcclInProgress);
  EXPECT_TRUE(b_.becomes(kNcclSuccess));
  EXPECT_TRUE(b_.becomes_idle());
}

TEST_F(FakePair, FinalizeWaitsForThePeerAndDestroyForFinalize) {
  EXPECT_EQ(nccl().comm_destroy(a_.communicator), kNcclInvalidUsage);
  EXPECT_EQ(new_violations(), 1);
  ASSERT_EQ(nccl().comm_finalize(a_.communicator), kNcclInProgress);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(a_.state(), kNcclInProgress);
  ASSERT_EQ(nccl().comm_finalize(b_.communicator), kNcclInProgress);
  EXPECT_TRUE(a_.becomes(kNcclSuccess));
  EXPECT_TRUE(b_.becomes(kNcclSuccess));
  EXPECT_EQ(nccl().comm_destroy(std::exchange(a_.communicator, nullptr)), kNcclSuccess);
  EXPECT_EQ(nccl().comm_destroy(std::exchange(b_.communicator, nullptr)), kNcclSuccess);
  EXPECT_EQ(fakenccl_communicators(), 0);
}

TEST_F(FakePair, FlippedBitArrives) {
  const Setting setting("FAKE_NCCL_FLIP_BIT", "1");
  std::memset(a_.memory, 'x', 10);
  a_.send(10);
  b_.receive(10);
  ASSERT_TRUE(b_.becomes_idle());
  EXPECT_EQ(b_.byte(4), 'x');
  EXPECT_EQ(b_.byte(5), 'x' ^ 1);
}

TEST_F(FakePair, UnknownMemoryCannotBeRegistered) {
  void* handle = nullptr;
  uint64_t unknown = 0;
  EXPECT_EQ(nccl().comm_register(a_.communicator, &unknown, 8, &handle), kNcclInvalidUsage);
  EXPECT_EQ(nccl().comm_register(a_.communicator, a_.memory, 1 << 16, &handle), kNcclSuccess);
  EXPECT_EQ(nccl().comm_deregister(a_.communicator, handle), kNcclSuccess);
}

TEST(FakeNccl, GroupOfAbortsEndsWhatSingleAbortsWouldWaitFor) {
  const Setting setting("FAKE_NCCL_ABORT_SYNCS", "1");
  NcclUniqueId first, second;
  nccl().get_unique_id(&first);
  nccl().get_unique_id(&second);
  End a(0), b(0), peer_of_a(1), peer_of_b(1);
  a.join(0, first);
  peer_of_a.join(1, first);
  b.join(0, second);
  peer_of_b.join(1, second);
  for (const End* end : {&a, &b, &peer_of_a, &peer_of_b}) {
    ASSERT_TRUE(end->becomes(kNcclSuccess));
  }
  a.receive(1);
  b.receive(1);
  nccl().group_start();
  a.abort();
  b.abort();
  nccl().group_end();  // Aborting them one by one would hang.
  EXPECT_TRUE(a.becomes_idle());
  EXPECT_TRUE(b.becomes_idle());
}

TEST(FakeNccl, InitIsInProgressAsLongAsThePeerIsMissing) {
  const Setting setting("FAKE_NCCL_INIT_DELAY_MS", "20");
  NcclUniqueId id;
  nccl().get_unique_id(&id);
  End a(0), b(1);
  a.join(0, id);
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(a.state(), kNcclInProgress);
  const Instant begun = real_now();
  b.join(1, id);
  EXPECT_TRUE(a.becomes(kNcclSuccess));
  EXPECT_GE(real_now() - begun, milliseconds(20));
}

TEST(FakeNccl, InitCanBeAbortedAndCanFail) {
  NcclUniqueId id;
  nccl().get_unique_id(&id);
  End a(0), b(1);
  a.join(0, id);
  a.abort();
  const Setting setting("FAKE_NCCL_INIT_FAILS", "1");
  b.join(1, id);
  EXPECT_TRUE(b.becomes(kNcclSystemError));
}

TEST(FakeNccl, BlockingCommunicatorIsAViolation) {
  const int before = fakenccl_violations();
  NcclUniqueId id;
  nccl().get_unique_id(&id);
  NcclComm* communicator = nullptr;
  NcclCommConfig config;
  config.max_ctas = 4;
  EXPECT_EQ(nccl().comm_init_rank_config(&communicator, 2, id, 0, &config), kNcclInvalidUsage);
  EXPECT_EQ(fakenccl_violations(), before + 1);
}

// The peer is a process that dies. It is forked while this process has no other threads.
class DeadPeer : public testing::TestWithParam<const char*> {};

TEST_P(DeadPeer, IsNotNoticedOrARemoteErrorAndSpinsUntilTheAbort) {
  const Setting setting("FAKE_NCCL_PEER_DEATH", GetParam());
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    NcclUniqueId id;
    PDJOB_CHECK(::read(pipe[0], &id, sizeof id) == sizeof id);
    End end(1);
    end.join(1, id);
    end.becomes(kNcclSuccess);
    end.receive(1);
    ::pause();
  }
  NcclUniqueId id;
  nccl().get_unique_id(&id);
  ASSERT_EQ(::write(pipe[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  {
    End end(0);
    end.join(0, id);
    ASSERT_TRUE(end.becomes(kNcclSuccess));
    end.send(1);
    ASSERT_TRUE(end.becomes_idle());
    end.receive(1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (std::strcmp(GetParam(), "net") == 0) {
      EXPECT_TRUE(end.becomes(kNcclRemoteError));
    } else {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_EQ(end.state(), kNcclSuccess);
    }
    EXPECT_FALSE(end.is_idle());
    end.abort();
    EXPECT_TRUE(end.becomes_idle());
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
}

INSTANTIATE_TEST_SUITE_P(Modes, DeadPeer, testing::Values("spin", "net"),
                         [](const auto& param) { return std::string(param.param); });

TEST(FakeCuda, WorkOfADestroyedStreamIsDoneAllTheSame) {
  const Setting setting("FAKE_CUDA_COPY_DELAY_US", "20000");
  const int objects = fakecudart_objects();
  GpuStream* stream = nullptr;
  gpu().stream_create_with_flags(&stream, 0);
  static char from = 'x', to = 'y';
  gpu().memcpy_async(&to, &from, 1, kGpuHostToDevice, stream);
  EXPECT_EQ(gpu().stream_query(stream), kGpuNotReady);
  gpu().stream_destroy(stream);
  EXPECT_TRUE(comes_true([] { return const_cast<volatile char&>(to) == 'x'; }));
  EXPECT_EQ(fakecudart_objects(), objects);
}

// --- the tables

std::string error_of(const auto& result) {
  return result.has_value() ? "" : result.error().message;
}

TEST(NcclApi, OpensALibraryThatIsNewEnough) {
  EXPECT_EQ(NcclApi::open(PDJOB_FAKE_NCCL)->version, 22809);
  const Setting setting("FAKE_NCCL_VERSION", "23203");
  EXPECT_EQ(NcclApi::open(PDJOB_FAKE_NCCL)->version, 23203);
}

TEST(NcclApi, RefusesAnOldLibraryNamingBothVersions) {
  const Setting setting("FAKE_NCCL_VERSION", "22703");
  EXPECT_EQ(error_of(NcclApi::open(PDJOB_FAKE_NCCL)),
            PDJOB_FAKE_NCCL " is NCCL 2.27.3, at least 2.28.9 is needed");
}

TEST(NcclApi, TellsWhatIsMissing) {
  EXPECT_EQ(error_of(NcclApi::open(PDJOB_FAKE_CUDART)), PDJOB_FAKE_CUDART " is not NCCL");
  const Result<NcclApi> missing = NcclApi::open("libnothing.so.7");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(missing.error().message.find("cannot load libnothing.so.7: "), 0);
}

TEST(GpuApi, TellsWhatIsMissing) {
  EXPECT_EQ(error_of(GpuApi::open("libc.so.6")), "libc.so.6 is not the CUDA runtime");
  const Setting setting("FAKE_CUDA_DEVICES", "2");
  EXPECT_TRUE(gpu().has_device(1).has_value());
  EXPECT_EQ(error_of(gpu().has_device(2)), "there is no GPU 2, this machine has 2");
  const Setting none("FAKE_CUDA_DEVICES", "0");
  EXPECT_EQ(error_of(gpu().has_device(0)),
            "there is no usable GPU: no CUDA-capable device is detected");
}

}  // namespace
}  // namespace pdjob::kvtransfer
