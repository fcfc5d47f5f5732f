// Hand-over of the KV rows of a prompt between two processes, by each transport, beside memcpy of
// the same rows in the same run.
//
//   kv_bench [tokens] [rounds]
//
// The layout is that of the default model. The sender writes its rows before it hands them over, as
// a prefill does: all of them at once ("one piece"), or chunk by chunk with time between ("in
// chunks"), where only the last chunk is left when the prompt is done. The last logits go along.
// What is measured is FetchDone::visible: from the last row being ready to all rows being verified
// in the receiver; for memcpy, the copy of what was left. On stdout one JSON document, then a
// table.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/real_clock.h"
#include "kvtransfer/kv_endpoint.h"

namespace pdjob::kvtransfer {
namespace {

constexpr uint32_t kWindows = 60;                 // SmolLM2-135M: K and V of 30 layers,
constexpr uint32_t kRowBytes = 204;               // 3 KV heads of 64 values in q8_0.
constexpr size_t kTailBytes = size_t{49152} * 4;  // The logits of its vocabulary.
constexpr uint32_t kChunkTokens = 256;            // Of prefill_config.
constexpr uint64_t kWarmUp = 3;                   // Rounds.
constexpr std::chrono::milliseconds kChunkTime{20};

enum class Pace : uint64_t { kOnePiece, kInChunks };

// Read by the sender's process from its pipe.
struct Order {
  uint64_t id = 0;
  Pace pace = Pace::kOnePiece;
};

Region make_region(uint32_t rows) {
  const uint64_t bytes = uint64_t{kWindows} * kRowBytes * rows;
  const int fd = ::memfd_create("kv-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  PDJOB_CHECK(::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
              ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  Region region{.rows_max = rows, .shared_fd = fd, .shared_bytes = bytes};
  for (uint64_t window = 0; window < kWindows; ++window) {
    const uint64_t offset = window * kRowBytes * rows;
    region.windows.push_back({.base = static_cast<std::byte*>(base) + offset,
                              .shared_offset = offset,
                              .row_bytes = kRowBytes});
  }
  return region;
}

void fill(const Region& region, uint32_t first, uint32_t count, uint64_t round) {
  for (const Window& window : region.windows) {
    std::memset(window.base + uint64_t{kRowBytes} * first, static_cast<int>(round + first),
                uint64_t{kRowBytes} * count);
  }
}

// Writes all rows, in chunks or not; `ready` is told of all chunks but the last. The last one's
// first row.
template <typename Ready>
uint32_t compute(const Region& region, Pace pace, uint64_t round, const Ready& ready) {
  uint32_t first = 0;
  if (pace == Pace::kInChunks) {
    for (; region.rows_max - first > kChunkTokens; first += kChunkTokens) {
      fill(region, first, kChunkTokens, round);
      ready(first + kChunkTokens);
      std::this_thread::sleep_for(kChunkTime);
    }
  }
  fill(region, first, region.rows_max - first, round);
  return first;
}

EndpointOptions options(const char* engine_id, TransportKind transport,
                        std::function<void(EndpointEvent)> sink) {
  return {.config = {.transport = transport}, .engine_id = engine_id, .sink = std::move(sink)};
}

Instant soon() { return real_now() + std::chrono::seconds(60); }

// The sender's process: says where it listens, then offers a transfer for each order it reads.
void send(uint32_t rows, int from_bench, int to_bench) {
  const Region source = make_region(rows);
  const auto endpoint =
      *KvEndpoint::start(options("prefill", TransportKind::kAuto, [](const EndpointEvent&) {}));
  const std::string address =
      std::to_string(endpoint->address().port) + " " + endpoint->address().unix_path + "\n";
  PDJOB_CHECK(::write(to_bench, address.data(), address.size()) > 0);
  for (Order order; ::read(from_bench, &order, sizeof order) == sizeof order;) {
    const TransferId id{.high = 0, .low = order.id};
    endpoint->offer(id, source, soon());
    compute(source, order.pace, order.id, [&](uint32_t ready) { endpoint->rows_ready(id, ready); });
    endpoint->commit(id, rows, std::vector<std::byte>(kTailBytes));
  }
}

class Receiver {
 public:
  Receiver(TransportKind transport, EndpointAddress peer)
      : peer_(std::move(peer)),
        endpoint_(*KvEndpoint::start(options("decode", transport, [this](EndpointEvent event) {
          PDJOB_CHECK(std::holds_alternative<FetchDone>(event));
          done_.set_value(std::get<FetchDone>(std::move(event)));
        }))) {
    peer_.host_id = endpoint_->address().host_id;
  }
  double fetch_seconds(const Order& order, const Region& target, int to_sender) {
    done_ = {};
    auto done = done_.get_future();
    endpoint_->fetch({.high = 0, .low = order.id}, peer_, target, target.rows_max, soon());
    PDJOB_CHECK(::write(to_sender, &order, sizeof order) == sizeof order);
    return seconds(done.get().visible);
  }

 private:
  EndpointAddress peer_;
  std::promise<FetchDone> done_;
  std::unique_ptr<KvEndpoint> endpoint_;
};

double memcpy_seconds(const Region& source, const Region& target, const Order& order) {
  const uint64_t first =
      kRowBytes * uint64_t{compute(source, order.pace, order.id, [](uint32_t) {})};
  const uint64_t bytes = uint64_t{kRowBytes} * source.rows_max - first;
  const Instant begin = real_now();
  for (uint32_t window = 0; window < kWindows; ++window) {
    std::memcpy(target.windows[window].base + first, source.windows[window].base + first, bytes);
  }
  return seconds(real_now() - begin);
}

struct Series {
  const char* pace;
  const char* way;
  std::vector<double> samples;

  double median() const { return samples[samples.size() / 2]; }
};

void print(std::vector<Series> all, uint32_t rows, uint64_t rounds) {
  std::printf(
      "{\"bench\": \"kv\", \"tokens\": %u, \"bytes\": %lu, \"chunk_tokens\": %u, \"rounds\": %lu, "
      "\"visible_ms\": [\n",
      rows, uint64_t{kWindows} * kRowBytes * rows, kChunkTokens, rounds);
  std::string table =
      "| visible, ms | min | median | max | median / memcpy |\n|---|---|---|---|---|\n";
  double memcpy_median = 0;
  for (Series& series : all) {
    std::sort(series.samples.begin(), series.samples.end());
    const double median = series.median();
    memcpy_median = std::string_view(series.way) == "memcpy" ? median : memcpy_median;
    std::array<char, 256> line;
    std::snprintf(line.data(), line.size(), "| %s, %s | %.2f | %.2f | %.2f | %.2f |\n", series.pace,
                  series.way, 1e3 * series.samples.front(), 1e3 * median,
                  1e3 * series.samples.back(), median / memcpy_median);
    table += line.data();
    std::printf(
        "  {\"pace\": \"%s\", \"way\": \"%s\", \"min\": %.3f, \"median\": %.3f, \"max\": %.3f}%s\n",
        series.pace, series.way, 1e3 * series.samples.front(), 1e3 * median,
        1e3 * series.samples.back(), &series == &all.back() ? "" : ",");
  }
  std::printf("]}\n\n%s", table.c_str());
}

void run(uint32_t rows, uint64_t rounds) {
  std::array<int, 2> to_sender, to_bench;
  PDJOB_CHECK(::pipe(to_sender.data()) == 0 && ::pipe(to_bench.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(to_sender[1]);
    send(rows, to_sender[0], to_bench[1]);
    ::_exit(0);
  }
  EndpointAddress sender{.engine_id = "prefill", .host = "127.0.0.1"};
  std::array<char, 256> line{};
  PDJOB_CHECK(::read(to_bench[0], line.data(), line.size() - 1) > 0);
  std::istringstream(line.data()) >> sender.port >> sender.unix_path;
  const Region source = make_region(rows), target = make_region(rows);
  std::vector<Series> all = {{"one piece", "memcpy"}, {"one piece", "shm"}, {"one piece", "tcp"},
                             {"in chunks", "memcpy"}, {"in chunks", "shm"}, {"in chunks", "tcp"}};
  {
    Receiver by_shm(TransportKind::kShm, sender), by_tcp(TransportKind::kTcp, sender);
    Order order;
    for (uint64_t round = 0; round < rounds + kWarmUp; ++round) {
      for (size_t i = 0; i < all.size(); ++i) {
        ++order.id;
        order.pace = i < 3 ? Pace::kOnePiece : Pace::kInChunks;
        const double taken = i % 3 == 0   ? memcpy_seconds(source, target, order)
                             : i % 3 == 1 ? by_shm.fetch_seconds(order, target, to_sender[1])
                                          : by_tcp.fetch_seconds(order, target, to_sender[1]);
        if (round >= kWarmUp) {
          all[i].samples.push_back(taken);
        }
      }
    }
  }
  ::close(to_sender[1]);
  ::waitpid(child, nullptr, 0);
  print(std::move(all), rows, rounds);
}

}  // namespace
}  // namespace pdjob::kvtransfer

int main(int argc, char** argv) {
  const long tokens = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 1000;
  const long rounds = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 15;
  if (tokens < 1 || tokens > 100'000 || rounds < 1) {
    std::fprintf(stderr, "usage: kv_bench [tokens, 1..100000] [rounds]\n");
    return 2;
  }
  pdjob::kvtransfer::run(static_cast<uint32_t>(tokens), static_cast<uint64_t>(rounds));
  return 0;
}
