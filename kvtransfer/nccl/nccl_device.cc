#include "kvtransfer/nccl/nccl_device.h"

#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include <pthread.h>

#include "common/limits.h"
#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "gpu/gpu_api.h"
#include "kvtransfer/nccl/nccl_api.h"
#include "kvtransfer/nccl/nccl_pair.h"
#include "kvtransfer/nccl/slab_ring.h"

namespace pdjob::kvtransfer {
namespace {

// Poll intervals: while something moves, and while communicators are idle.
constexpr Duration kBusyPoll = std::chrono::microseconds(20);
constexpr Duration kIdlePoll = std::chrono::milliseconds(50);

class DeviceThread final : public NcclDevice {
 public:
  DeviceThread(Options options, const NcclApi& nccl, const GpuApi& gpu)
      : options_(std::move(options)), nccl_(nccl), gpu_(gpu), thread_([this] {
          ::pthread_setname_np(::pthread_self(), "nccl");
          run();
          ended_.close();
        }) {}

  ~DeviceThread() override {
    commands_.close();
    std::vector<int> nothing;
    ended_.wait_and_drain(nothing, real_now() + options_.config.abort_timeout);
    if (!ended_.closed()) {
      options_.on_stuck();
    }
    thread_.join();
  }

  void make_id(NcclCommKey key) override { tell(MakeIdCommand{key}); }
  void join(NcclCommKey key, int rank, const NcclLinkId& id) override {
    tell(JoinCommand{key, rank, id});
  }
  void send(NcclCommKey key, uint32_t slab, uint32_t bytes, std::vector<GpuCopy> copies) override {
    tell(StartCommand{key, {NcclPair::Operation::Kind::kSend, slab, bytes, std::move(copies)}});
  }
  void receive(NcclCommKey key, uint32_t slab, uint32_t bytes,
               std::vector<GpuCopy> copies) override {
    tell(StartCommand{key, {NcclPair::Operation::Kind::kReceive, slab, bytes, std::move(copies)}});
  }
  void leave(NcclCommKey key) override { tell(LeaveCommand{key}); }
  void abort(NcclCommKey key) override { tell(AbortCommand{key}); }

 private:
  struct MakeIdCommand {
    NcclCommKey key;
  };
  struct JoinCommand {
    NcclCommKey key;
    int rank;
    NcclLinkId id;
  };
  struct StartCommand {
    NcclCommKey key;
    NcclPair::Operation operation;
  };
  struct LeaveCommand {
    NcclCommKey key;
  };
  struct AbortCommand {
    NcclCommKey key;
  };
  using Command =
      std::variant<MakeIdCommand, JoinCommand, StartCommand, LeaveCommand, AbortCommand>;

  // Unbounded push: links bound their commands to a few for each slab of each link.
  void tell(Command command) { commands_.push_always(std::move(command)); }

  // --- on the nccl thread

  void run() {
    gpu_.set_device(static_cast<int>(options_.config.cuda.device));
    SlabRings rings(nccl_, gpu_);
    rings_ = &rings;
    std::vector<Command> commands;
    while (!commands_.closed()) {
      commands.clear();
      commands_.wait_and_drain(commands, next_poll());
      take(commands);
      poll();
    }
    std::vector<NcclCommKey> left;
    for (const auto& [key, pair] : pairs_) {
      left.push_back(key);
    }
    abort_all(left);
    // The destructor's caller then frees memory that copies may still write, so wait for them.
    for (poll(); !pairs_.empty(); poll()) {
      std::this_thread::sleep_for(kBusyPoll);
    }
  }

  Instant next_poll() const {
    bool busy = false;
    for (const auto& [key, pair] : pairs_) {
      busy = busy || pair->busy();
    }
    return pairs_.empty() ? kNever : real_now() + (busy ? kBusyPoll : kIdlePoll);
  }

  void take(std::vector<Command>& commands) {
    std::vector<NcclCommKey> aborts;
    for (Command& command : commands) {
      if (const auto* abort = std::get_if<AbortCommand>(&command)) {
        aborts.push_back(abort->key);
      } else {
        std::visit([this](auto& what) { execute(what); }, command);
      }
    }
    abort_all(aborts);
  }

  void execute(const MakeIdCommand& command) {
    NcclUniqueId id{};
    if (const NcclResult made = nccl_.get_unique_id(&id); made != kNcclSuccess) {
      return options_.report(Failed{command.key,
                                    {ErrorCode::kUnavailable, "NCCL cannot make a unique id: " +
                                                                  nccl_.explain(made, nullptr)}});
    }
    IdMade report{command.key};
    std::memcpy(report.id.data(), &id, sizeof id);
    options_.report(report);
  }

  void execute(const JoinCommand& command) {
    auto& pair = pairs_[command.key];
    pair = std::make_unique<NcclPair>(nccl_, gpu_, *rings_, command.key, options_.report);
    pair->join(command.rank, command.id, options_.config.ctas_max);
  }

  void execute(StartCommand& command) {
    if (const auto pair = pairs_.find(command.key); pair != pairs_.end()) {
      pair->second->start(std::move(command.operation));
    }
  }

  void execute(const LeaveCommand& command) {
    if (const auto pair = pairs_.find(command.key); pair != pairs_.end()) {
      pair->second->leave();
    }
  }

  void execute(const AbortCommand& /*command*/) {}

  // Aborts several communicators in one group: NCCL then raises all their flags before it waits for
  // any kernel. One by one, the first abort could wait for a kernel that only the second would end.
  void abort_all(const std::vector<NcclCommKey>& keys) {
    std::vector<NcclComm*> communicators;
    for (const NcclCommKey key : keys) {
      if (const auto pair = pairs_.find(key);
          pair != pairs_.end() && pair->second->communicator() != nullptr) {
        communicators.push_back(pair->second->communicator());
      }
    }
    if (communicators.size() > 1) {
      nccl_.group_start();
    }
    for (NcclComm* communicator : communicators) {
      nccl_.comm_abort(communicator);
    }
    if (communicators.size() > 1) {
      nccl_.group_end();
    }
    for (const NcclCommKey key : keys) {
      if (const auto pair = pairs_.find(key); pair != pairs_.end()) {
        pair->second->aborted();
      } else {
        options_.report(Left{key});
      }
    }
  }

  void poll() {
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      if (pair->second->poll()) {
        ++pair;
        continue;
      }
      const NcclCommKey key = pair->first;
      pair = pairs_.erase(pair);
      options_.report(Left{key});
    }
  }

  const Options options_;
  const NcclApi nccl_;
  const GpuApi gpu_;
  Channel<Command> commands_{limits::kChannelMax};
  Channel<int> ended_{1};
  SlabRings* rings_ = nullptr;  // Valid while the thread runs.
  std::map<NcclCommKey, std::unique_ptr<NcclPair>> pairs_;
  std::thread thread_;  // Last, because it uses the other members.
};

}  // namespace

Status nccl_is_there(const NcclConfig& config) {
  const auto told = [](const Error& why) {
    return Error{why.code, "kvtransfer.transport is nccl, but " + why.message};
  };
  if (const auto nccl = NcclApi::open(config.library); !nccl) {
    return told(nccl.error());
  }
  const auto gpu = GpuApi::open(config.cuda.library);
  if (!gpu) {
    return told(gpu.error());
  }
  const Status device = gpu->has_device(static_cast<int>(config.cuda.device));
  return device ? ok() : Status(told(device.error()));
}

Result<std::unique_ptr<NcclDevice>> NcclDevice::open(Options options) {
  PDJOB_TRY_STATUS(nccl_is_there(options.config));
  PDJOB_TRY(const NcclApi nccl, NcclApi::open(options.config.library));
  PDJOB_TRY(const GpuApi gpu, GpuApi::open(options.config.cuda.library));
  return std::unique_ptr<NcclDevice>(std::make_unique<DeviceThread>(std::move(options), nccl, gpu));
}

}  // namespace pdjob::kvtransfer
