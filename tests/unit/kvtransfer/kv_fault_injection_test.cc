// Puts every fault of fault_transport.h into every range of a transfer. The outcome is the right
// rows, or a clear error in time. Afterwards the endpoints work as before.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/support/fake_cudart.h"
#include "tests/support/fault_transport.h"
#include "tests/unit/kvtransfer/fault_plans.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kRanges = 4;
constexpr uint32_t kRowsPerRange = 5;
constexpr TestRegion::Shape kShape{.windows = 3, .rows = kRanges * kRowsPerRange, .row_bytes = 200};
// Every fault must end well before the lease and the deadline.
constexpr Duration kLease = seconds(60);
constexpr Duration kBound = seconds(10);

struct Held {
  std::ptrdiff_t fds = 0, threads = 0, mappings = 0;
};

// The double keeps its streams (threads) and its mappings of a peer's memory (memfds) for the next
// user. The double itself counts leaks of them.
bool is_kept_by_the_double(const std::filesystem::path& entry) {
  std::error_code error;
  std::string comm;
  std::ifstream(entry / "comm") >> comm;
  return comm == "fake-stream" ||
         std::filesystem::read_symlink(entry, error).string().starts_with("/memfd:fake-gpu");
}

std::ptrdiff_t entries(const char* folder) {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += is_kept_by_the_double(entry.path()) ? 0 : 1;
  }
  return count;
}

Held held() {
  Held now{.fds = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    now.mappings += line.find("memfd:kv-test") != std::string::npos ? 1 : 0;
  }
  return now;
}

// The outcome of one transfer.
struct Outcome {
  bool offer_ended = false;
  bool fetch_ended = false;
  bool released = true;  // The rows have no writer any more.
  bool done = false;
  Error error;

  bool complete() const { return offer_ended && fetch_ended && released; }
};

class KvFaultInjection : public testing::TestWithParam<Way> {
 protected:
  ~KvFaultInjection() override {
    sender_.reset();
    receiver_.reset();
    regions_.clear();
    EXPECT_EQ(fakecudart_violations(), 0);
  }
  TestRegion& make_source(uint64_t seed) {
    regions_.emplace_back(kShape, GetParam().source()).fill(seed, 0, kShape.rows);
    return regions_.back();
  }
  TestRegion& make_target() { return regions_.emplace_back(kShape, GetParam().target()); }

  void start_endpoints(Duration connect_timeout) {
    for (std::optional<TestEndpoint>* endpoint : {&sender_, &receiver_}) {
      endpoint->emplace(
          TestEndpoint::Options{.engine_id = endpoint == &sender_ ? "prefill" : "decode",
                                .transport = GetParam().transport,
                                .tcp = GetParam().tcp,
                                .connect_timeout = connect_timeout,
                                .open_transport = with_faults(plan_of),
                                .device = endpoint == &sender_ ? GetParam().sender_device()
                                                               : GetParam().receiver_device()});
    }
  }
  KvEndpoint& sender() { return *sender_->operator->(); }
  KvEndpoint& receiver() { return *receiver_->operator->(); }

  // Pushes one range after the other, up to the faulty one.
  void push_chunks(TransferId id, const TestRegion& source) {
    const uint64_t sent = sender().stats().bytes_sent;
    for (uint32_t range = 0; range < kRanges; ++range) {
      const uint32_t ready = (range + 1) * kRowsPerRange;
      sender().rows_ready(id, ready);
      if (range < plan_of(id).range) {
        ASSERT_TRUE(becomes_true(
            [&] { return sender().stats().bytes_sent == sent + ready * source.row_bytes(); }));
      }
    }
    sender().commit(id, kShape.rows, std::vector<std::byte>(100, std::byte{7}));
  }

  void take_fetch_event(const EndpointEvent& event, std::map<TransferId, Outcome>& outcomes) {
    if (const auto* done = std::get_if<FetchDone>(&event)) {
      Outcome& outcome = outcomes.at(done->id);
      EXPECT_FALSE(std::exchange(outcome.fetch_ended, true)) << "a fetch ended twice";
      outcome.done = true;
    } else if (const auto* failed = std::get_if<FetchFailed>(&event)) {
      Outcome& outcome = outcomes.at(failed->id);
      EXPECT_FALSE(std::exchange(outcome.fetch_ended, true)) << "a fetch ended twice";
      outcome.error = failed->error;
      outcome.released = failed->region_safe;
      EXPECT_NE(failed->error.message, "");
    } else {
      Outcome& outcome = outcomes.at(std::get<FetchReleased>(event).id);
      EXPECT_FALSE(std::exchange(outcome.released, true)) << "rows were released twice";
    }
  }
  void take_offer_event(const EndpointEvent& event, std::map<TransferId, Outcome>& outcomes) {
    const auto* done = std::get_if<OfferDone>(&event);
    Outcome& outcome = outcomes.at(done != nullptr ? done->id : std::get<OfferFailed>(event).id);
    EXPECT_FALSE(std::exchange(outcome.offer_ended, true)) << "an offer ended twice";
  }
  // Waits until all transfers have ended on both ends. With kYes it withdraws an offer whose fetch
  // failed, as a router would: its link may have been lost before the grant.
  enum class Withdraw { kNo, kYes };
  void await(std::map<TransferId, Outcome>& outcomes, Withdraw withdraw) {
    const auto all = [&](auto what) {
      return std::all_of(outcomes.begin(), outcomes.end(),
                         [&](const auto& entry) { return what(entry.second); });
    };
    while (!all([](const Outcome& o) { return o.fetch_ended && o.released; })) {
      const std::optional<EndpointEvent> event = receiver_->next(kBound);
      ASSERT_TRUE(event) << "a fetch hangs";
      take_fetch_event(*event, outcomes);
      if (const auto* failed = std::get_if<FetchFailed>(&*event);
          failed != nullptr && withdraw == Withdraw::kYes) {
        sender().withdraw(failed->id, failed->error);
      }
    }
    while (!all([](const Outcome& o) { return o.offer_ended; })) {
      const std::optional<EndpointEvent> event = sender_->next(kBound);
      ASSERT_TRUE(event) << "an offer hangs";
      take_offer_event(*event, outcomes);
    }
  }

  Outcome transfer(FaultPlan plan, const TestRegion& source, const TestRegion& to) {
    const TransferId id = transfer_with(plan, ++transfers_);
    std::map<TransferId, Outcome> outcomes{{id, {}}};
    // The grant comes first. Otherwise all rows that are ready by then would be one range.
    receiver().fetch(id, sender().address(), to.region(), kShape.rows, in(kLease));
    const bool awaited = sender_->becomes_awaited(id, true);
    EXPECT_TRUE(awaited);
    sender().offer(id, source.region(), in(kLease));
    push_chunks(id, source);
    await(outcomes, Withdraw::kNo);
    return outcomes.at(id);
  }
  // The first attempts may fail: after a stalled payload, the fetch ends a little before its link.
  bool transfers_well_again(TestRegion& to) {
    const TestRegion& source = make_source(3);
    for (int attempts = 0; attempts < 3 && !HasFatalFailure(); ++attempts) {
      to.clear();
      const TransferId id = transfer_with({}, ++transfers_);
      std::map<TransferId, Outcome> outcomes{{id, {}}};
      sender().offer(id, source.region(), in(kLease));
      sender().commit(id, kShape.rows, {});
      receiver().fetch(id, sender().address(), to.region(), kShape.rows, in(kLease));
      await(outcomes, Withdraw::kYes);
      if (outcomes.at(id).done) {
        return to.holds(3, 0, kShape.rows);
      }
    }
    return false;
  }
  bool nothing_is_alive() {
    return becomes_true([&] {
      return sender().stats().offers_alive == 0 && receiver().stats().fetches_alive == 0 &&
             sender().stats().links == receiver().stats().links && receiver().stats().links >= 1 &&
             receiver().stats().links <= GetParam().tcp.streams;
    });
  }

  // Leaves out the sockets of links: an open stream is no leak.
  Held held_beside_links() {
    Held now = held();
    now.fds -= static_cast<std::ptrdiff_t>(sender().stats().links + receiver().stats().links);
    return now;
  }
  // A lost link takes its mappings along, so there may be fewer than before.
  testing::AssertionResult nothing_leaks(const Held& before) {
    const auto is_back = [&](const Held& now) {
      return now.fds == before.fds && now.threads == before.threads &&
             now.mappings <= before.mappings;
    };
    if (becomes_true([&] { return is_back(held_beside_links()); })) {
      return testing::AssertionSuccess();
    }
    const Held now = held_beside_links();
    return testing::AssertionFailure()
           << now.fds << " fds, were " << before.fds << "; " << now.threads << " threads, were "
           << before.threads << "; " << now.mappings << " mappings, were " << before.mappings;
  }

  // Injects the fault into each range, one after the other.
  void inject(FaultKind kind, const std::function<void(const Outcome&)>& expect) {
    // Short for faults that the test waits out. For the others, longer than a busy machine needs.
    const bool stops = kind == FaultKind::kStall || kind == FaultKind::kLoseArrival ||
                       kind == FaultKind::kTruncate;
    start_endpoints(milliseconds(stops ? 300 : 2000));
    const TestRegion& source = make_source(1);
    TestRegion& to = make_target();
    TestRegion& again = make_target();
    transfer({}, source, to);
    ASSERT_TRUE(transfers_well_again(again));
    const Held before = held_beside_links();
    for (uint32_t range = 0; range < kRanges && !HasFatalFailure(); ++range) {
      SCOPED_TRACE(range);
      to.clear();
      const Outcome outcome = transfer({.kind = kind, .range = range}, source, to);
      ASSERT_TRUE(outcome.complete());
      expect(outcome);
      EXPECT_TRUE(!outcome.done || to.holds(1, 0, kShape.rows));
      to.fill(2, 0, kShape.rows);  // The rows belong to another transfer now.
      EXPECT_TRUE(transfers_well_again(again));
      EXPECT_TRUE(to.holds(2, 0, kShape.rows));
      EXPECT_TRUE(nothing_is_alive());
      EXPECT_TRUE(nothing_leaks(before));
    }
  }

  std::deque<TestRegion> regions_;  // They outlive the endpoints.
  std::optional<TestEndpoint> sender_, receiver_;
  uint64_t transfers_ = 0;
};

void expect_corrupt(const Outcome& outcome) {
  EXPECT_FALSE(outcome.done);
  EXPECT_EQ(outcome.error.code, ErrorCode::kCorrupt) << outcome.error.message;
}

TEST_P(KvFaultInjection, RowsThatComeLateAreRight) {
  inject(FaultKind::kDelay,
         [](const Outcome& outcome) { EXPECT_TRUE(outcome.done) << outcome.error.message; });
}

TEST_P(KvFaultInjection, RowsThatAreNotAnnouncedAreCorrupt) {
  inject(FaultKind::kDropAnnouncement, expect_corrupt);
}

TEST_P(KvFaultInjection, FlippedBitIsCorrupt) { inject(FaultKind::kFlipBit, expect_corrupt); }

TEST_P(KvFaultInjection, RowsThatComeTwiceAreCorrupt) {
  inject(FaultKind::kDuplicate, expect_corrupt);
}

TEST_P(KvFaultInjection, FailedPushIsToldAsItIs) {
  inject(FaultKind::kFail, [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.done);
    EXPECT_EQ(outcome.error, (Error{ErrorCode::kInternal, "the transport broke"}));
  });
}

// On tcp the next message is then taken for the missing row, and the link may stay out of step.
TEST_P(KvFaultInjection, FewerRowsThanAnnouncedAreNeverDone) {
  inject(FaultKind::kTruncate, [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.done);
    if (GetParam().peer_writes()) {
      EXPECT_EQ(outcome.error.code, ErrorCode::kCorrupt);
    }
  });
}

TEST_P(KvFaultInjection, RowsThatStopFailLongBeforeTheLease) {
  inject(FaultKind::kStall, [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.done);
    EXPECT_TRUE(outcome.error.code == ErrorCode::kTimeout ||
                outcome.error.code == ErrorCode::kUnavailable);
  });
}

TEST_P(KvFaultInjection, RowsThatAreAnnouncedAndDoNotArriveFailLongBeforeTheDeadline) {
  inject(FaultKind::kLoseArrival, [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.done);
    EXPECT_EQ(outcome.error.code, ErrorCode::kTimeout) << outcome.error.message;
  });
}

constexpr int kBatches = 10;
constexpr size_t kTransfersPerBatch = 100;

// A stall holds up its link and a garbled link ends. A batch gets only one such fault, or they
// would hide all others.
FaultPlan draw_plan(Random& random, bool is_first) {
  static constexpr FaultKind kAny[] = {FaultKind::kNone, FaultKind::kDelay, FaultKind::kFlipBit,
                                       FaultKind::kFail, FaultKind::kDuplicate};
  static constexpr FaultKind kFew[] = {FaultKind::kStall, FaultKind::kDropAnnouncement,
                                       FaultKind::kTruncate, FaultKind::kLoseArrival};
  return {
      .kind = is_first ? kFew[random.below(std::size(kFew))] : kAny[random.below(std::size(kAny))],
      .range = static_cast<uint32_t>(random.below(kRanges))};
}

TEST_P(KvFaultInjection, ThousandsOfFaultyTransfersLeakNothing) {
  // Enough for a busy machine to open a link: encrypted, signed by both ends, under sanitizers.
  start_endpoints(milliseconds(200));
  Random random(20261121);
  std::vector<TestRegion*> sources, targets;
  for (size_t i = 0; i < kTransfersPerBatch; ++i) {
    sources.push_back(&make_source(i));
    targets.push_back(&make_target());
  }
  TestRegion& again = make_target();
  Held before;
  // A corrupt transfer takes the others of its link along. Transfers between GPUs move in step and
  // end together.
  const size_t few =
      GetParam().from_gpu || GetParam().to_gpu ? 0 : kTransfersPerBatch * kBatches / 20;
  size_t done = 0;
  const auto enough = [&](int batches) {  // A busy machine ends fewer in time, and gets more.
    return batches > kBatches && (done > few || batches > 3 * kBatches);
  };
  for (int batch = 0; !enough(batch) && !HasFatalFailure(); ++batch) {
    const bool faulty = batch > 0;
    std::map<TransferId, Outcome> outcomes;
    std::vector<TransferId> ids;
    for (size_t i = 0; i < kTransfersPerBatch; ++i) {
      const FaultPlan plan = faulty ? draw_plan(random, i == 0) : FaultPlan{};
      ids.push_back(transfer_with(plan, ++transfers_));
      outcomes[ids.back()] = {};
      targets[i]->clear();
      sender().offer(ids[i], sources[i]->region(), in(kLease));
      receiver().fetch(ids[i], sender().address(), targets[i]->region(), kShape.rows, in(kLease));
    }
    for (uint32_t range = 1; range <= kRanges; ++range) {
      for (const TransferId id : ids) {
        sender().rows_ready(id, range * kRowsPerRange);
      }
    }
    for (const TransferId id : ids) {
      sender().commit(id, kShape.rows, {});
    }
    await(outcomes, Withdraw::kYes);
    for (size_t i = 0; i < kTransfersPerBatch; ++i) {
      const bool is_done = outcomes.at(ids[i]).done;
      done += faulty && is_done ? 1 : 0;
      EXPECT_TRUE(!is_done || targets[i]->holds(i, 0, kShape.rows)) << "wrong rows are done";
    }
    if (!faulty) {
      ASSERT_TRUE(transfers_well_again(again));
      before = held_beside_links();  // Everything that can be mapped is mapped now.
    }
  }
  EXPECT_GT(done, few);
  EXPECT_TRUE(transfers_well_again(again));
  EXPECT_TRUE(nothing_is_alive());
  EXPECT_TRUE(nothing_leaks(before));
}

INSTANTIATE_TEST_SUITE_P(Transports, KvFaultInjection,
                         testing::Values(kShmWay, kTcpWay, kTlsWay, kTlsStreamsWay, kCudaIpcWay,
                                         kTcpFromGpuWay, kTcpToGpuWay, kShmFromGpuWay, kNcclWay,
                                         kNcclGpusWay, kNcclFromGpuWay, kNcclToGpuWay),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace pdjob::kvtransfer
