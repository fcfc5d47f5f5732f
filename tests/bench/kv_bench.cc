// Hand-over of KV rows between two processes, by each transport, beside memcpy of the same rows in
// the same run.
//
//   kv_bench [MiB] [rounds]
//
// The sender rewrites its rows before every transfer, as a prefill does. `seconds` is
// FetchDone::visible: from the last row being ready to all rows being verified in the receiver,
// when nothing was pushed before. One JSON document on stdout.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
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

constexpr uint32_t kWindows = 60;    // SmolLM2-135M: K and V of 30 layers,
constexpr uint32_t kRowBytes = 384;  // 3 KV heads of 64 f16.
constexpr uint64_t kWarmUp = 2;

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

void fill(const Region& region, uint64_t round) {
  std::memset(region.windows[0].base, static_cast<int>(round), region.shared_bytes);
}

EndpointOptions options(const char* engine_id, TransportKind transport,
                        std::function<void(EndpointEvent)> sink) {
  return {.config = {.transport = transport}, .engine_id = engine_id, .sink = std::move(sink)};
}

Instant soon() { return real_now() + std::chrono::seconds(60); }

// The sender's process: says where it listens, then offers a transfer for each id it reads.
void send(uint32_t rows, int from_bench, int to_bench) {
  const Region source = make_region(rows);
  const auto endpoint =
      *KvEndpoint::start(options("prefill", TransportKind::kAuto, [](const EndpointEvent&) {}));
  const std::string address =
      std::to_string(endpoint->address().port) + " " + endpoint->address().unix_path + "\n";
  PDJOB_CHECK(::write(to_bench, address.data(), address.size()) > 0);
  for (uint64_t id = 0; ::read(from_bench, &id, sizeof id) == sizeof id;) {
    fill(source, id);
    endpoint->offer({.high = 0, .low = id}, source, soon());
    endpoint->commit({.high = 0, .low = id}, rows, {});
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
  double fetch_seconds(uint64_t id, const Region& target, int to_sender) {
    done_ = {};
    auto done = done_.get_future();
    endpoint_->fetch({.high = 0, .low = id}, peer_, target, target.rows_max, soon());
    PDJOB_CHECK(::write(to_sender, &id, sizeof id) == sizeof id);
    return seconds(done.get().visible);
  }

 private:
  EndpointAddress peer_;
  std::promise<FetchDone> done_;
  std::unique_ptr<KvEndpoint> endpoint_;
};

double memcpy_seconds(const Region& source, const Region& target, uint64_t round) {
  fill(source, round);
  const Instant begin = real_now();
  for (uint32_t window = 0; window < kWindows; ++window) {
    std::memcpy(target.windows[window].base, source.windows[window].base,
                uint64_t{kRowBytes} * source.rows_max);
  }
  return seconds(real_now() - begin);
}

void print(const char* name, std::vector<double> samples, double bytes, bool last) {
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  std::printf(
      "  \"%s\": {\"seconds_min\": %.6f, \"seconds_median\": %.6f, \"seconds_max\": %.6f, "
      "\"GBps_median\": %.2f}%s\n",
      name, samples.front(), median, samples.back(), bytes / median / 1e9, last ? "" : ",");
}

void run(uint32_t mebibytes, uint64_t rounds) {
  const uint32_t rows = mebibytes * (1u << 20) / (kWindows * kRowBytes);
  int to_sender[2], to_bench[2];
  PDJOB_CHECK(::pipe(to_sender) == 0 && ::pipe(to_bench) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(to_sender[1]);
    send(rows, to_sender[0], to_bench[1]);
    ::_exit(0);
  }
  EndpointAddress sender{.engine_id = "prefill", .host = "127.0.0.1"};
  char line[256] = {};
  char name[128] = {};
  PDJOB_CHECK(::read(to_bench[0], line, sizeof line - 1) > 0 &&
              std::sscanf(line, "%hu %127s", &sender.port, name) == 2);
  sender.unix_path = name;
  const Region source = make_region(rows), target = make_region(rows);
  std::vector<double> copied, shm, tcp;
  {
    Receiver by_shm(TransportKind::kShm, sender), by_tcp(TransportKind::kTcp, sender);
    for (uint64_t round = 0; round < rounds + kWarmUp; ++round) {
      copied.push_back(memcpy_seconds(source, target, round));
      shm.push_back(by_shm.fetch_seconds(2 * round + 1, target, to_sender[1]));
      tcp.push_back(by_tcp.fetch_seconds(2 * round + 2, target, to_sender[1]));
    }
  }
  ::close(to_sender[1]);
  ::waitpid(child, nullptr, 0);
  for (auto* samples : {&copied, &shm, &tcp}) {
    samples->erase(samples->begin(), samples->begin() + kWarmUp);
  }
  const auto bytes = static_cast<double>(source.shared_bytes);
  std::printf("{\"bench\": \"kv\", \"bytes\": %.0f, \"rows\": %u, \"rounds\": %lu,\n", bytes, rows,
              rounds);
  print("memcpy", copied, bytes, false);
  print("shm", shm, bytes, false);
  print("tcp", tcp, bytes, true);
  std::printf("}\n");
}

}  // namespace
}  // namespace pdjob::kvtransfer

int main(int argc, char** argv) {
  const long mebibytes = argc > 1 ? std::atol(argv[1]) : 24;
  const long rounds = argc > 2 ? std::atol(argv[2]) : 15;
  if (mebibytes < 1 || mebibytes > 1024 || rounds < 1) {
    std::fprintf(stderr, "usage: kv_bench [MiB, 1..1024] [rounds]\n");
    return 2;
  }
  pdjob::kvtransfer::run(static_cast<uint32_t>(mebibytes), static_cast<uint64_t>(rounds));
  return 0;
}
