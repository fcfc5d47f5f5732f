// The nccl transport on libfakenccl.so, where NCCL and the GPU misbehave. Real GPUs do this too
// rarely to test.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "common/exit_code.h"
#include "tests/support/fake_cudart.h"
#include "tests/support/fake_nccl.h"
#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr TestRegion::Shape kBig{.windows = 4, .rows = 8192, .row_bytes = 1024};  // Nine slabs.

// Six slabs, more than a ring has.
constexpr uint32_t kRowsOfASlab = 1000;
constexpr TestRegion::Shape kSix{.windows = 4, .rows = 6 * kRowsOfASlab, .row_bytes = 1000};

// Tests change these while threads of the doubles read them. So they exist from the beginning, with
// 0 as "unset". setenv() replaces a value safely, but a new name moves the table.
constexpr std::array kChangedUnderWay = {"FAKE_CUDA_COPY_DELAY_US", "FAKE_NCCL_ABORT_BLOCKS",
                                         "FAKE_NCCL_FLIP_BIT",      "FAKE_NCCL_INIT_DELAY_MS",
                                         "FAKE_NCCL_INIT_FAILS",    "FAKE_NCCL_IN_PROGRESS",
                                         "FAKE_NCCL_MOVE_DELAY_MS"};

// Rows are where the parameter says. Every test restores the settings and checks for leaks.
class NcclFaults : public testing::TestWithParam<Way> {
 protected:
  static void SetUpTestSuite() {
    for (const char* name : kChangedUnderWay) {
      ::setenv(name, "0", 1);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : settings_) {
      unset(name);
    }
    EXPECT_EQ(fakenccl_violations(), 0);
    EXPECT_EQ(fakecudart_violations(), 0);
    EXPECT_EQ(fakenccl_communicators(), 0);
    EXPECT_EQ(fakenccl_allocations(), 0);
    close_test_gpu();
    EXPECT_EQ(fakecudart_objects(), 0);
  }
  static TestEndpoint::Options prefill(const std::string& engine_id = "prefill") {
    return {.engine_id = engine_id,
            .transport = TransportKind::kNccl,
            .device = GetParam().sender_device()};
  }
  static TestEndpoint::Options decode() {
    return {.engine_id = "decode",
            .transport = TransportKind::kNccl,
            .device = GetParam().receiver_device()};
  }
  static TestRegion source(TestRegion::Shape shape) {
    return TestRegion(shape, GetParam().source());
  }
  static TestRegion target(TestRegion::Shape shape) {
    return TestRegion(shape, GetParam().target());
  }
  static void expect_safe(TestEndpoint& receiver, const FetchFailed& failed) {
    EXPECT_TRUE(failed.region_safe || GetParam().writes_late());
    await_safe(receiver, failed);
  }
  void set(const std::string& name, const std::string& value) {
    settings_[name] = value;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  static void unset(const std::string& name) {
    if (std::ranges::find(kChangedUnderWay, name) != kChangedUnderWay.end()) {
      ::setenv(name.c_str(), "0", 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }

  // Offers all of a big region as transfer 1, and lives until it is killed.
  static void send_all(Pipe& to_test, Pipe& from_test) {
    TestEndpoint sender(prefill());
    TestRegion from = source(kBig);
    from.fill(1, 0, kBig.rows);
    sender->offer(transfer_id(1), from.region(), in(kDeadline));
    sender->commit(transfer_id(1), kBig.rows, {});
    to_test.say(sender->address());
    from_test.hear();
  }
  // Offers kSix as transfer 1. The slab with the number that it hears stays in NCCL's hands.
  static void send_up_to_a_slab(Pipe& to_test, Pipe& from_test) {
    const auto slab = static_cast<uint32_t>(std::stoul(from_test.hear()));
    TestEndpoint sender(prefill());
    TestRegion from = source(kSix);
    from.fill(1, 0, kSix.rows);
    to_test.say(sender->address());
    EXPECT_TRUE(sender.becomes_awaited(transfer_id(1), true));
    sender->offer(transfer_id(1), from.region(), in(kDeadline));
    sender->rows_ready(transfer_id(1), slab * kRowsOfASlab);
    to_test.say("before");
    from_test.hear();
    ::setenv("FAKE_NCCL_MOVE_DELAY_MS", "60000", 1);  // It is one of kChangedUnderWay.
    sender->rows_ready(transfer_id(1), kSix.rows);
    EXPECT_TRUE(becomes_true(
        [&] { return sender->stats().bytes_sent > from.row_bytes() * slab * kRowsOfASlab; }));
    to_test.say("within");
    from_test.hear();
  }
  // Moves a whole transfer between two endpoints.
  static void expect_moves(TestEndpoint& sender, TestEndpoint& receiver, uint64_t number) {
    TestRegion from = source({}), to = target({});
    from.fill(number, 0, 64);
    sender->offer(transfer_id(number), from.region(), in(kDeadline));
    sender->commit(transfer_id(number), 64, {});
    receiver->fetch(transfer_id(number), sender->address(), to.region(), 64, in(kDeadline));
    receiver.expect<FetchDone>();
    sender.expect<OfferDone>();
    EXPECT_TRUE(to.holds(number, 0, 64));
  }

 private:
  std::map<std::string, std::string> settings_;
};

std::string start_error(const NcclConfig& nccl) {
  const auto started = KvEndpoint::start(
      {.config = {.transport = TransportKind::kNccl, .nccl = nccl}, .engine_id = "engine"});
  return started.has_value() ? "" : started.error().message;
}

TEST_P(NcclFaults, WhatIsMissingIsToldAtTheStart) {
  NcclConfig config = fake_nccl();
  config.library = "libnothing.so.7";
  EXPECT_EQ(
      start_error(config).find("kvtransfer.transport is nccl, but cannot load libnothing.so.7: "),
      0);
  config = fake_nccl();
  config.cuda.device = 64;
  EXPECT_EQ(start_error(config),
            "kvtransfer.transport is nccl, but there is no GPU 64, this machine has 64");
  set("FAKE_CUDA_DEVICES", "0");
  EXPECT_EQ(start_error(fake_nccl()),
            "kvtransfer.transport is nccl, but there is no usable GPU: no CUDA-capable device is "
            "detected");
  unset("FAKE_CUDA_DEVICES");
  set("FAKE_NCCL_VERSION", "22703");
  EXPECT_EQ(start_error(fake_nccl()), "kvtransfer.transport is nccl, but " PDJOB_FAKE_NCCL
                                      " is NCCL 2.27.3, at least 2.28.9 is needed");
}

TEST_P(NcclFaults, SlowLibraryMovesTheSameRows) {
  set("FAKE_NCCL_INIT_DELAY_MS", "50");
  set("FAKE_NCCL_IN_PROGRESS", "3");
  set("FAKE_NCCL_MOVE_DELAY_MS", "2");
  set("FAKE_CUDA_COPY_DELAY_US", "2000");
  TestEndpoint sender(prefill()), receiver(decode());
  TestRegion from = source(kBig), to = target(kBig);
  from.fill(3, 0, kBig.rows);
  receiver->fetch(transfer_id(1), sender->address(), to.region(), kBig.rows, in(kDeadline));
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), kBig.rows / 2);
  sender->commit(transfer_id(1), kBig.rows, {});
  EXPECT_EQ(receiver.expect<FetchDone>().transport, "nccl");
  EXPECT_TRUE(to.holds(3, 0, kBig.rows));
}

TEST_P(NcclFaults, FlippedBitIsFound) {
  set("FAKE_NCCL_FLIP_BIT", "1");
  TestEndpoint sender(prefill()), receiver(decode());
  TestRegion from = source({}), to = target({});
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->commit(transfer_id(1), 64, {});
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  const auto failed = receiver.expect<FetchFailed>();
  EXPECT_EQ(failed.error.code, ErrorCode::kCorrupt);
  EXPECT_TRUE(failed.region_safe);
}

// A slab is under way. Covers both ways in which real NCCL shows a dead peer.
TEST_P(NcclFaults, KilledSenderFailsTheFetchAndTheNextSenderServes) {
  set("FAKE_NCCL_MOVE_DELAY_MS", "300");
  std::list<ForkedPeer> peers = forked_peers(2, send_all);
  unset("FAKE_NCCL_MOVE_DELAY_MS");  // Only the peers keep it.
  for (const char* death : {"spin", "net"}) {
    set("FAKE_NCCL_PEER_DEATH", death);
    ForkedPeer& peer = peers.front();
    TestEndpoint receiver(decode());
    TestRegion to = target(kBig);
    receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 1; }));
    EXPECT_FALSE(receiver.next(milliseconds(150)));
    peer.kill();
    const auto failed = receiver.expect<FetchFailed>(seconds(2));
    EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
    expect_safe(receiver, failed);
    EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 0; }));
    TestEndpoint other(prefill("prefill-2"));
    expect_moves(other, receiver, 2);
    peers.pop_front();
  }
}

TEST_P(NcclFaults, StoppedSenderIsAbortedAfterTheSlabTimeout) {
  set("FAKE_NCCL_MOVE_DELAY_MS", "300");
  std::list<ForkedPeer> peers = forked_peers(4, send_all);
  unset("FAKE_NCCL_MOVE_DELAY_MS");
  // On a busy machine, one may stop before it has announced a slab. Its silence then tells.
  Error error;
  for (; error.code != ErrorCode::kTimeout && !peers.empty(); peers.pop_front()) {
    TestEndpoint::Options impatient = decode();
    impatient.nccl.slab_timeout = milliseconds(400);
    TestEndpoint receiver(impatient);
    TestRegion to = target(kBig);
    receiver->fetch(transfer_id(1), peers.front().to_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 1; }));
    EXPECT_FALSE(receiver.next(milliseconds(150)));
    peers.front().stop();
    const auto failed = receiver.expect<FetchFailed>();
    error = failed.error;
    expect_safe(receiver, failed);
    EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 0; }));
  }
  EXPECT_EQ(error, (Error{ErrorCode::kTimeout, "KV rows did not move over NCCL in time"}));
}

// Regression: the first transfer of each link counted as stalled.
TEST_P(NcclFaults, JoiningMayTakeLongerThanRowsMay) {
  set("FAKE_NCCL_INIT_DELAY_MS", "1500");
  TestEndpoint::Options from = prefill(), to = decode();
  from.connect_timeout = to.connect_timeout = milliseconds(400);
  TestEndpoint sender(from), receiver(to);
  expect_moves(sender, receiver, 1);
}

TEST_P(NcclFaults, PeerThatNeverJoinsIsGivenUp) {
  set("FAKE_NCCL_INIT_DELAY_MS", "60000");
  TestEndpoint::Options impatient = decode();
  impatient.nccl.init_timeout = milliseconds(200);
  TestEndpoint sender(prefill()), receiver(impatient);
  TestRegion to = target({});
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(5)).error.message,
            "the peer did not join an NCCL communicator in time");
}

TEST_P(NcclFaults, ErrorOfTheLibraryFailsTheFetchAndTheNextLinkStartsAnew) {
  TestEndpoint sender(prefill()), receiver(decode());
  TestRegion to = target({});
  set("FAKE_NCCL_INIT_FAILS", "1");
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(5)).error.code, ErrorCode::kUnavailable);
  unset("FAKE_NCCL_INIT_FAILS");
  expect_moves(sender, receiver, 2);
}

TEST_P(NcclFaults, AbortThatBlocksEndsTheProcess) {
  for (const bool at_the_end : {false, true}) {
    const pid_t child = fork_at_rest();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TestEndpoint::Options impatient = decode();
      impatient.nccl.init_timeout = milliseconds(200);
      impatient.nccl.abort_timeout = milliseconds(300);
      set("FAKE_NCCL_ABORT_BLOCKS", "1");
      set("FAKE_NCCL_INIT_DELAY_MS", "60000");
      {
        TestEndpoint receiver(impatient);
        impatient.engine_id = "prefill";
        impatient.nccl.cuda.device += 1;
        TestEndpoint sender(impatient);
        TestRegion to = target({});
        receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
        if (at_the_end) {
          EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() > 0; }));
        } else {
          receiver.expect<FetchFailed>();  // The fetch is failed all the same.
          ::pause();
        }
      }
      ::_exit(99);  // The destructor must not return while something still runs in NCCL.
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), kExitFailed);
  }
}

TEST_P(NcclFaults, CommunicatorsBeyondTheLimitAreClosedAndOpenedAgain) {
  TestEndpoint::Options narrow = decode();
  narrow.nccl.links_max = 1;
  TestEndpoint first(prefill("prefill-1")), second(prefill("prefill-2")), receiver(narrow);
  for (uint64_t number = 1; number <= 6; number += 2) {
    expect_moves(first, receiver, number);
    expect_moves(second, receiver, number + 1);
    // Both ends of each communicator are in this process.
    EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 2; }));
  }
  EXPECT_EQ(receiver->stats().links, 2);
}

// Regression: it was closed only if it was idle when the other one was opened.
TEST_P(NcclFaults, ACommunicatorThatWasInUseWhenAnotherOpenedIsClosedWhenItRests) {
  TestEndpoint::Options narrow = decode();
  narrow.nccl.links_max = 1;
  TestEndpoint first(prefill("prefill-1")), second(prefill("prefill-2")), receiver(narrow);
  TestRegion from = source({}), to = target({}), to_second = target({});
  receiver->fetch(transfer_id(1), first->address(), to.region(), 64, in(kDeadline));
  receiver->fetch(transfer_id(2), second->address(), to_second.region(), 64, in(kDeadline));
  for (TestEndpoint* const sender : {&first, &second}) {
    const TransferId id = transfer_id(sender == &first ? 1 : 2);
    (*sender)->offer(id, from.region(), in(kDeadline));
    (*sender)->rows_ready(id, 32);
    ASSERT_TRUE(becomes_true([&] { return (*sender)->stats().bytes_sent > 0; }));
  }
  EXPECT_EQ(fakenccl_communicators(), 4);  // Both ends of each are in this process.
  first->commit(transfer_id(1), 64, {});
  receiver.expect<FetchDone>();
  EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 2; }));
  second->commit(transfer_id(2), 64, {});
  receiver.expect<FetchDone>();
}

// Regression: it still counted as open, and the one that had replaced it was closed too.
TEST_P(NcclFaults, ACommunicatorThatIsSlowToGoMakesRoomAtOnce) {
  constexpr milliseconds kSlow{200};
  set("FAKE_NCCL_LEAVE_DELAY_MS", std::to_string(kSlow.count()));
  TestEndpoint::Options narrow = decode();
  narrow.nccl.links_max = 1;
  TestEndpoint first(prefill("prefill-1")), second(prefill("prefill-2")), receiver(narrow);
  expect_moves(first, receiver, 1);
  expect_moves(second, receiver, 2);
  EXPECT_TRUE(becomes_true([] { return fakenccl_communicators() == 2; }));
  std::this_thread::sleep_for(2 * kSlow);
  EXPECT_EQ(fakenccl_communicators(), 2);
}

TEST_P(NcclFaults, ManyFaultyTransfersLeakNothing) {
  TestEndpoint receiver(decode());
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  ptrdiff_t fds = 0, threads = 0;
  int objects = 0;
  TestRegion from = source(kBig), to = target(kBig);
  for (uint64_t number = 1; number <= 40; ++number) {
    const bool never_opens = number % 4 == 0;
    set("FAKE_NCCL_INIT_FAILS", never_opens ? "1" : "0");
    {
      TestEndpoint sender(prefill("prefill-" + std::to_string(number)));
      sender->offer(transfer_id(number), from.region(), in(kDeadline));
      sender->rows_ready(transfer_id(number), kBig.rows);
      receiver->fetch(transfer_id(number), sender->address(), to.region(), kBig.rows,
                      in(kDeadline));
      if (!never_opens) {
        EXPECT_TRUE(becomes_true([&] { return sender->stats().bytes_sent > 0; }));
      }
      if (number % 4 == 1) {
        receiver->cancel(transfer_id(number));
      } else if (number % 4 == 2) {
        sender->withdraw(transfer_id(number), {ErrorCode::kCancelled, "test"});
      }
    }  // In the other cases the sender ends while rows move.
    expect_safe(receiver, receiver.expect<FetchFailed>());
    EXPECT_TRUE(becomes_true(
        [&] { return receiver->stats().links == 0 && fakenccl_communicators() == 0; }));
    if (number == 8) {
      fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
      objects = fakecudart_objects();
    }
  }
  unset("FAKE_NCCL_INIT_FAILS");
  // On a busy machine more transfers overlap, and there are some more rings, whose memory has
  // descriptors in the double. Each kind of transfer came 8 times since.
  EXPECT_TRUE(becomes_true([&] { return entries("/proc/self/fd") <= fds + 4; }));
  EXPECT_LE(fakecudart_objects(), objects + 6);
  EXPECT_TRUE(becomes_true([&] { return entries("/proc/self/task") <= threads + 1; }));
  EXPECT_EQ(receiver->stats().fetches_alive, 0);
  TestEndpoint sender(prefill());
  expect_moves(sender, receiver, 1000);
}

// Counts each pass of a row between a GPU's memory and the host's.
TEST_P(NcclFaults, OnlyRowsInTheHostsMemoryPassThroughIt) {
  TestEndpoint sender(prefill()), receiver(decode());
  TestRegion from = source(kBig), to = target(kBig);
  from.fill(1, 0, kBig.rows);
  const long long before = fakecudart_host_bytes();
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->commit(transfer_id(1), kBig.rows, {});
  receiver->fetch(transfer_id(1), sender->address(), to.region(), kBig.rows, in(kDeadline));
  receiver.expect<FetchDone>();
  sender.expect<OfferDone>();
  const uint64_t ends_in_host = (GetParam().from_gpu ? 0U : 1U) + (GetParam().to_gpu ? 0U : 1U);
  EXPECT_EQ(fakecudart_host_bytes() - before,
            static_cast<long long>(from.row_bytes() * kBig.rows * ends_in_host));
  EXPECT_TRUE(to.holds(1, 0, kBig.rows));
}

// The GPUs are in the middle of slabs. Their rows are given back when the GPUs have finished with
// them.
TEST_P(NcclFaults, RowsOfACancelledTransferAreGivenBackWhenTheGpusHaveLetGoOfThem) {
  for (const bool by_the_sender : {false, true}) {
    TestEndpoint sender(prefill()), receiver(decode());
    {
      TestRegion from = source(kBig), to = target(kBig);
      from.fill(1, 0, kBig.rows);
      expect_moves(sender, receiver, 10);
      set("FAKE_NCCL_MOVE_DELAY_MS", "200");
      receiver->fetch(transfer_id(1), sender->address(), to.region(), kBig.rows, in(kDeadline));
      ASSERT_TRUE(sender.becomes_awaited(transfer_id(1), true));
      sender->offer(transfer_id(1), from.region(), in(kDeadline));
      sender->rows_ready(transfer_id(1), kBig.rows);
      EXPECT_FALSE(receiver.next(milliseconds(100)));
      if (by_the_sender) {
        sender->withdraw(transfer_id(1), {ErrorCode::kCancelled, "test"});
      } else {
        receiver->cancel(transfer_id(1));
      }
      const auto failed = receiver.expect<FetchFailed>();
      EXPECT_EQ(failed.region_safe, !GetParam().to_gpu);
      expect_safe(receiver, failed);
      to.fill(2, 0, kBig.rows);
      sender.expect<OfferFailed>();
      EXPECT_FALSE(receiver.next(milliseconds(300)));
      EXPECT_TRUE(to.holds(2, 0, kBig.rows));
    }  // The double reports memory that is freed during a copy.
    unset("FAKE_NCCL_MOVE_DELAY_MS");
    expect_moves(sender, receiver, 11);
  }
}

TEST_P(NcclFaults, SenderThatIsKilledOrStopsInAnySlabChangesNoRowThatWasGivenOn) {
  std::list<ForkedPeer> peers = forked_peers(6, send_up_to_a_slab);
  for (const bool is_killed : {true, false}) {
    for (const uint32_t slab : {0U, 2U, 5U}) {
      SCOPED_TRACE(slab);
      ForkedPeer& peer = peers.front();
      TestEndpoint::Options impatient = decode();
      impatient.nccl.slab_timeout = milliseconds(700);
      TestEndpoint receiver(impatient);
      TestRegion to = target(kSix);
      peer.from_test.say(std::to_string(slab));
      receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kSix.rows,
                      in(kDeadline));
      ASSERT_EQ(peer.to_test.hear(), "before");
      std::this_thread::sleep_for(milliseconds(100));  // The slabs before it move.
      peer.from_test.say("go on");
      ASSERT_EQ(peer.to_test.hear(), "within");
      if (is_killed) {
        peer.kill();
      } else {
        peer.stop();
      }
      // Fails at the slab's deadline. If the peer stops before it has announced a slab, it fails by
      // the silence.
      const auto failed = receiver.expect<FetchFailed>();
      expect_safe(receiver, failed);
      to.fill(2, 0, kSix.rows);
      if (!is_killed) {
        peer.signal(SIGCONT);
      }
      EXPECT_FALSE(receiver.next(milliseconds(100)));
      EXPECT_TRUE(to.holds(2, 0, kSix.rows));
      peers.pop_front();
    }
  }
}

TEST_P(NcclFaults, EndedEndpointTouchesNoRowsAnyMore) {
  for (const bool sender_first : {false, true}) {
    TestRegion from = source(kBig), to = target(kBig);
    set("FAKE_CUDA_COPY_DELAY_US", "30000");
    {
      auto receiver = std::make_unique<TestEndpoint>(decode());
      auto sender = std::make_unique<TestEndpoint>(prefill());
      (*sender)->offer(transfer_id(1), from.region(), in(kDeadline));
      (*sender)->commit(transfer_id(1), kBig.rows, {});
      (*receiver)->fetch(transfer_id(1), (*sender)->address(), to.region(), kBig.rows,
                         in(kDeadline));
      EXPECT_TRUE(becomes_true([&] { return (*sender)->stats().bytes_sent > 0; }));
      (sender_first ? sender : receiver).reset();
    }  // The double reports memory that is freed during a copy.
    unset("FAKE_CUDA_COPY_DELAY_US");
  }
}

// As after an abort that blocks: rows that the GPU still writes can never be reused.
TEST_P(NcclFaults, GpuThatDoesNotComeToRestAfterAnAbortEndsTheProcess) {
  if (!GetParam().to_gpu) {
    GTEST_SKIP() << "its rows are written by the kv thread";
  }
  const pid_t child = fork_at_rest();
  ASSERT_GE(child, 0);
  if (child == 0) {
    TestEndpoint::Options impatient = decode();
    impatient.nccl.slab_timeout = milliseconds(300);
    impatient.nccl.abort_timeout = milliseconds(300);
    TestEndpoint sender(prefill()), receiver(impatient);
    TestRegion from = source({}), to = target({});
    set("FAKE_CUDA_COPY_DELAY_US", "60000000");
    sender->offer(transfer_id(1), from.region(), in(kDeadline));
    sender->commit(transfer_id(1), 64, {});
    receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
    if (!receiver.expect<FetchFailed>().region_safe) {
      ::pause();
    }
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kExitFailed);
}

INSTANTIATE_TEST_SUITE_P(Memories, NcclFaults,
                         testing::Values(kNcclWay, kNcclGpusWay, kNcclFromGpuWay, kNcclToGpuWay),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace pdjob::kvtransfer
