#include "launcher/clusters/topology_here.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "common/os/affinity.h"
#include "launcher/clusters/machine_topology.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kPrintedBytesMax = size_t{256} * 1024;
constexpr Duration kDriverAnswers = std::chrono::seconds(10);  // It may wake up eight GPUs.

// Runs one program on a loop of its own, and keeps what it prints.
class Printing final : net::FdHandler {
 public:
  Printing() = default;
  ~Printing() {
    if (output_.valid()) {
      loop_.unwatch(output_.get());
    }
  }
  Printing(const Printing&) = delete;
  Printing& operator=(const Printing&) = delete;

  std::string run(net::ChildOptions options, Duration at_most) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      return "";
    }
    output_ = net::Fd(ends[0]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    net::Fd writing(ends[1]);
    options.output = writing.get();
    auto child = net::ChildProcess::start(loop_, options, [this](const net::ChildExit& exit) {
      read_output();
      done_ = exit.signal == 0 && exit.code == 0;
      loop_.stop();
    });
    writing.reset();
    if (!child || !loop_.watch(output_.get(), EPOLLIN, *this)) {
      return "";
    }
    loop_.call_at(loop_.now() + at_most, [this] { loop_.stop(); });
    loop_.run();
    return done_ && text_.size() <= kPrintedBytesMax ? std::move(text_) : "";
  }

 private:
  void on_ready(uint32_t /*epoll_events*/) override { read_output(); }

  void read_output() {
    std::array<char, 16384> piece{};
    ssize_t got = 1;
    while (output_.valid() && got > 0 && text_.size() <= kPrintedBytesMax) {
      got = ::read(output_.get(), piece.data(), piece.size());
      text_.append(piece.data(), got > 0 ? static_cast<size_t>(got) : 0);
    }
    const bool waits = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (output_.valid() && !waits) {
      loop_.unwatch(output_.get());
      output_.reset();
    }
  }

  net::EventLoop loop_;
  net::Fd output_;
  std::string text_;
  bool done_ = false;
};

bool numbers_gpus_by_address() {
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  return order != nullptr && std::string_view(order) == "PCI_BUS_ID";
}

uint64_t gpu_memory() {
  static const uint64_t bytes = largest_gpu_memory(printed_by(
      "nvidia-smi", {"--query-gpu=memory.total", "--format=csv,noheader,nounits"}, kDriverAnswers));
  return bytes;
}

// Links do not change while this process runs.
const std::string& driver_table() {
  static const std::string table = [] {
    std::string text = printed_by("nvidia-smi", {"topo", "-m"}, kDriverAnswers);
    if (text.empty()) {
      log::warn("nvidia-smi topo -m tells nothing: GPUs of one worker may lack NVLink");
    }
    return text;
  }();
  return table;
}

}  // namespace

std::string printed_by(const std::string& program, const std::vector<std::string>& arguments,
                       Duration at_most) {
  const auto path = net::find_program(program);
  if (!path) {
    return "";
  }
  net::ChildOptions options{.program = *path, .arguments = {program}};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  return Printing().run(std::move(options), at_most);
}

NodeTopology topology_here(const std::vector<std::string>& gpus) {
  const size_t files = gpu_device_files();
  if (gpus.empty() || files == 0) {
    return {};
  }
  NodeTopology topology = read_topology({.root = "",
                                         .gpus = gpus,
                                         .numbered_by_address = numbers_gpus_by_address(),
                                         .cpus = own_cpus(),
                                         .driver_table = files > 1 ? driver_table() : ""});
  topology.gpu_memory_bytes = gpu_memory();
  return topology;
}

}  // namespace pdjob::launcher
