// How long does a worker take to load a prompt's KV from the store of its machine, beside one
// thread's memcpy of as many bytes?
//
//   store_moves_bench [ROUNDS] [MIB]...
//
// The store and the worker are processes, each on its own core, with rows of the default model, and
// of one with 8 billion parameters (32 layers, 8 KV heads of 128 values in f16). The worker gives
// the store its blocks, then loads all of them as it ships: one block, then the rest in batches
// (worker/blocks/block_exchange). The two ways take turns. Prints Markdown: milliseconds, and
// ratios.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "common/parse_number.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/loop/event_loop.h"
#include "store/kv_store.h"
#include "tests/bench/kv_ends.h"
#include "tests/bench/kv_rows.h"

namespace pdjob::bench {
namespace {

using namespace kvtransfer;

constexpr uint32_t kBlockRows = 64;
constexpr uint32_t kAskedAtOnce = 32;  // As block_exchange.cc.
constexpr uint64_t kStoreBytes = uint64_t{2} << 30;
constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr RowShape kShapes[] = {{}, {.windows = 64, .row_bytes = 2048}};

// From the store's process to the worker's.
struct Pipe {
  int in = -1;
  int out = -1;
  Pipe() {
    int ends[2] = {};
    PDJOB_CHECK(::pipe(ends) == 0);
    in = ends[0];
    out = ends[1];
  }
  void send(uint32_t value) const {
    PDJOB_CHECK(::write(out, &value, sizeof value) == sizeof value);
  }
  uint32_t receive() const {
    uint32_t value = 0;
    PDJOB_CHECK(::read(in, &value, sizeof value) == sizeof value);
    return value;
  }
  void send(const std::string& text) const {
    send(static_cast<uint32_t>(text.size()));
    PDJOB_CHECK(::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  std::string receive_text() const {
    std::string text(receive(), 0);
    PDJOB_CHECK(::read(in, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return text;
  }
};

// Says where it is, and then the number of its blocks whenever that has changed.
[[noreturn]] void be_store(const Pipe& said) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  keep_to_core(0);
  net::EventLoop loop;
  const auto store =
      store::KvStore::open(loop, {.memory_bytes = kStoreBytes},
                           options("store", TransportKind::kShm, [](const EndpointEvent&) {}))
          .value();
  said.send(store->endpoint().address().unix_path);
  said.send(store->endpoint().address().host_id);
  std::function<void(size_t)> look = [&](size_t before) {
    const size_t now = store->blocks().blocks();
    if (now != before) {
      said.send(static_cast<uint32_t>(now));
    }
    loop.call_at(loop.now() + std::chrono::milliseconds(1), [&look, now] { look(now); });
  };
  look(0);
  loop.run();
  std::abort();
}

Region part_of(const Region& all, uint32_t block) {
  Region part = all;
  part.rows_max = kBlockRows;
  for (Window& window : part.windows) {
    const uint64_t offset = uint64_t{block} * kBlockRows * window.row_bytes;
    window.base += offset;
    window.shared_offset += offset;
  }
  return part;
}

class Worker {
 public:
  explicit Worker(EndpointAddress store) : store_(std::move(store)) {}

  // Returns once the store has them. `first`: of their names.
  void give(const Region& rows, uint64_t first, uint32_t blocks, const Pipe& said,
            uint32_t before) {
    BlockNews held = news(BlockNews::Kind::kHeld, rows, first, 0, blocks);
    held.holder = endpoint_->address();
    for (uint32_t block = 0; block < blocks; ++block) {
      const TransferId id = held.blocks[block].transfer;
      endpoint_->offer(id, part_of(rows, block), soon());
      endpoint_->commit(id, kBlockRows, {});
    }
    endpoint_->tell(store_, held);
    while (said.receive() < before + blocks) {
    }
  }

  double load(const Region& to, uint64_t first, uint32_t blocks) {
    const Instant begin = real_now();
    for (uint32_t from = 0; from < blocks;) {
      const uint32_t count = from == 0 ? 1 : std::min(blocks - from, kAskedAtOnce);
      ask(to, first, from, count);
      from += count;
    }
    return seconds(real_now() - begin);
  }

 private:
  BlockNews news(BlockNews::Kind kind, const Region& rows, uint64_t first, uint32_t from,
                 uint32_t count) {
    BlockNews made{.kind = kind, .rows = kBlockRows};
    for (const Window& window : rows.windows) {
      made.row_bytes.push_back(window.row_bytes);
    }
    made.before = from == 0 ? BlockName{} : BlockName{.high = first, .low = from};
    for (uint32_t block = from; block < from + count; ++block) {
      made.blocks.push_back({.name = {.high = first, .low = block + 1},
                             .transfer = {.high = 1, .low = ++transfers_}});
    }
    return made;
  }

  void ask(const Region& to, uint64_t first, uint32_t from, uint32_t count) {
    const BlockNews wanted = news(BlockNews::Kind::kWanted, to, first, from, count);
    left_ = count;
    all_done_ = {};
    auto done = all_done_.get_future();
    endpoint_->tell(store_, wanted);
    for (uint32_t i = 0; i < count; ++i) {
      endpoint_->fetch(wanted.blocks[i].transfer, store_, part_of(to, from + i), kBlockRows,
                       soon());
    }
    done.wait();
  }

  EndpointAddress store_;
  uint64_t transfers_ = 0;
  std::atomic<uint32_t> left_ = 0;
  std::promise<void> all_done_;
  std::unique_ptr<KvEndpoint> endpoint_ =
      *KvEndpoint::start(options("worker", TransportKind::kShm, [this](const EndpointEvent& event) {
        PDJOB_CHECK(!std::holds_alternative<FetchFailed>(event));
        if (std::holds_alternative<FetchDone>(event) && --left_ == 0) {
          all_done_.set_value();
        }
      }));
};

double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(int rounds, const std::vector<uint64_t>& sizes) {
  const Pipe said;
  if (::fork() == 0) {
    be_store(said);
  }
  keep_to_core(1);
  EndpointAddress store{.engine_id = "store"};
  store.unix_path = said.receive_text();
  store.host_id = said.receive_text();
  Worker worker(store);
  std::printf(
      "| KiB of a token | MiB | store, ms | memcpy, ms | memcpy / store (min / median / max) |\n"
      "|---|---|---|---|---|\n");
  uint32_t there = 0;
  uint64_t first = 0;
  for (const RowShape& shape : kShapes) {
    for (const uint64_t mib : sizes) {
      const auto blocks = static_cast<uint32_t>(mib * kMib / shape.bytes_per_token() / kBlockRows);
      const Region from = make_region(blocks * kBlockRows, shape);
      const Region to = make_region(blocks * kBlockRows, shape);
      fill(from, 0, from.rows_max, mib);
      worker.give(from, ++first, blocks, said, there);
      there += blocks;
      std::vector<double> loads, copies, ratios;
      for (int round = 0; round <= rounds; ++round) {
        const double load = worker.load(to, first, blocks);
        const Instant begin = real_now();
        copy(from, to, 0);
        const double copied = seconds(real_now() - begin);
        if (round > 0) {  // The first one maps memory.
          loads.push_back(1e3 * load);
          copies.push_back(1e3 * copied);
          ratios.push_back(copied / load);
        }
      }
      std::ranges::sort(ratios);
      std::printf("| %.0f | %.0f | %.2f | %.2f | %.2f / %.2f / %.2f |\n",
                  static_cast<double>(shape.bytes_per_token()) / 1024,
                  static_cast<double>(shape.bytes_per_token() * from.rows_max) / kMib,
                  middle(loads), middle(copies), ratios.front(), middle(ratios), ratios.back());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace pdjob::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? pdjob::parse_number<int>(argv[1]).value_or(0) : 15;
  std::vector<uint64_t> sizes;
  for (int i = 2; i < argc; ++i) {
    sizes.push_back(pdjob::parse_number<uint64_t>(argv[i]).value_or(64));
  }
  pdjob::bench::measure(rounds, sizes.empty() ? std::vector<uint64_t>{16, 64, 256} : sizes);
  return 0;
}
