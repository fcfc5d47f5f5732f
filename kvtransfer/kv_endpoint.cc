#include "kvtransfer/kv_endpoint.h"

#include <cstdio>
#include <fstream>
#include <thread>

#include <sys/epoll.h>
#include <sys/stat.h>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "common/random.h"
#include "kvtransfer/link/socket.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/open_transport.h"
#include "kvtransfer/session/endpoint_context.h"
#include "kvtransfer/session/receiver.h"
#include "kvtransfer/session/sender.h"

namespace pdjob::kvtransfer {
namespace {

// Boot id and network namespace: abstract sockets work only where both are equal.
std::string machine_id() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network{};
  if (boot_id.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
    return "";  // Matches no machine.
  }
  return boot_id + "/" + std::to_string(network.st_ino);
}

std::string random_socket_name() {
  return "@pdjob-kv-" + TransferId{.high = entropy(), .low = entropy()}.to_string();
}

// Accepts links of one transport. Loop-bound.
class Listener final : private net::FdHandler {
 public:
  Listener(UniqueFd socket, TransportKind transport, Sender& sender)
      : socket_(std::move(socket)), transport_(transport), sender_(sender) {}

  Status watch(net::EventLoop& loop) { return loop.watch(socket_.get(), EPOLLIN, *this); }

 private:
  void on_ready(uint32_t /*epoll_events*/) override {
    for (UniqueFd socket = accept_next(socket_); socket.valid(); socket = accept_next(socket_)) {
      sender_.accept(std::move(socket), transport_);
    }
  }

  UniqueFd socket_;
  TransportKind transport_;
  Sender& sender_;
};

class EndpointThread final : public KvEndpoint {
 public:
  EndpointThread(EndpointOptions options, EndpointAddress address)
      : address_(std::move(address)),
        context_{.loop = loop_,
                 .config = options.config,
                 .identity = {.engine_id = options.engine_id,
                              .keys = options.keys ? *options.keys
                                                   : LinkAuthority("").issue(options.engine_id),
                              .fingerprint = std::move(options.fingerprint)},
                 .host_id = address_.host_id,
                 .loopback_only = !options.keys,
                 .emit = std::move(options.sink),
                 .open_transport = options.open_transport ? std::move(options.open_transport)
                                                          : TransportOpener(open_transport),
                 .device = options.device},
        sender_(context_),
        receiver_(context_) {}

  ~EndpointThread() override {
    loop_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Status open_tls() {
    PDJOB_TRY(context_.tls, TlsContext::open({.key = context_.identity.keys.tls}));
    return ok();
  }

  Status open_gpu() {
    PDJOB_TRY(context_.gpu, Gpu::open(context_.config.nccl.cuda.library, *context_.device));
    return ok();
  }

  Status open_nccl() {
    PDJOB_TRY(context_.nccl, NcclLinks::open(loop_, context_.config.nccl));
    return ok();
  }

  Status listen(UniqueFd socket, TransportKind transport) {
    listeners_.push_back(std::make_unique<Listener>(std::move(socket), transport, sender_));
    return listeners_.back()->watch(loop_);
  }

  void run() {
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "kv");
      loop_.run();
    });
  }

  const EndpointAddress& address() const override { return address_; }

  void offer(TransferId id, Region source, Instant deadline) override {
    loop_.post([=, this, source = std::move(source)]() mutable {
      sender_.offer(id, std::move(source), deadline);
    });
  }
  void rows_ready(TransferId id, uint32_t ready) override {
    loop_.post([=, this] { sender_.rows_ready(id, ready); });
  }
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) override {
    loop_.post([=, this, tail = std::move(tail), now = real_now()]() mutable {
      sender_.commit(id, rows, std::move(tail), now);
    });
  }
  void withdraw(TransferId id, Error reason) override {
    loop_.post([=, this] { sender_.withdraw(id, reason); });
  }
  void await(TransferId id, EndpointAddress peer, Instant until) override {
    loop_.post([=, this] { receiver_.await(id, peer, until); });
  }
  void fetch(TransferId id, EndpointAddress peer, Region target, uint32_t rows,
             Instant deadline) override {
    loop_.post([=, this, target = std::move(target)]() mutable {
      receiver_.fetch(id, peer, std::move(target), rows, deadline);
    });
  }
  void cancel(TransferId id) override {
    loop_.post([=, this] { receiver_.cancel(id); });
  }

  void report_pairs(std::function<void(std::vector<PairStats>)> done) override {
    loop_.post([this, done = std::move(done)] {
      std::vector<std::vector<LinkId>> links;
      std::vector<PairStats> rows = context_.pairs.rows(real_now(), links);
      for (size_t i = 0; i < rows.size(); ++i) {
        for (const LinkId link : links[i]) {
          sender_.count_alive(link, rows[i]);
          receiver_.count_alive(link, rows[i]);
        }
      }
      done(std::move(rows));
    });
  }

  EndpointStats stats() const override {
    const EndpointCounters& counters = context_.counters;
    return {.links = counters.links,
            .offers_alive = counters.offers_alive,
            .fetches_alive = counters.fetches_alive,
            .waits_alive = counters.waits_alive,
            .bytes_sent = counters.bytes_sent,
            .bytes_received = counters.bytes_received,
            .transfers_sent = counters.transfers_sent,
            .transfers_received = counters.transfers_received,
            .transfers_failed = counters.transfers_failed,
            .digest_errors = counters.digest_errors};
  }

 private:
  net::EventLoop loop_;
  const EndpointAddress address_;
  EndpointContext context_;
  Sender sender_;
  Receiver receiver_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KvEndpoint>> KvEndpoint::start(EndpointOptions options) {
  if (encode(options.fingerprint).size() > limits::kLinkMessageBytesMax / 2) {
    return Error{ErrorCode::kInvalidArgument, "the KV fingerprint is too long"};
  }
  if (options.config.tcp.encrypt && !options.keys) {
    return Error{ErrorCode::kInvalidArgument,
                 "kvtransfer.tcp.encrypt needs the keys of a job: a worker started by hand has "
                 "them by --key-file, and else its peers are on this machine"};
  }
  EndpointAddress address{
      .engine_id = options.engine_id, .host = options.config.listen_host, .host_id = machine_id()};
  const TransportKind wanted = options.config.transport;
  const bool in_gpu = options.device.has_value();
  if (wanted == TransportKind::kCudaIpc && !in_gpu) {
    return Error{
        ErrorCode::kInvalidArgument,
        "kvtransfer.transport is cuda_ipc, but the engine keeps its KV in the host's memory"};
  }
  UniqueFd tcp;
  UniqueFd shm;
  UniqueFd gpu;
  if (!stays_on_machine(wanted)) {
    PDJOB_TRY(tcp, listen_tcp(options.config.listen_host, options.config.listen_port));
    PDJOB_TRY(address.port, bound_port(tcp));
  }
  if (wanted == TransportKind::kAuto || wanted == TransportKind::kShm) {
    address.unix_path = random_socket_name();
    PDJOB_TRY(shm, listen_unix(address.unix_path));
  }
  if (in_gpu && (wanted == TransportKind::kAuto || wanted == TransportKind::kCudaIpc)) {
    address.gpu_path = random_socket_name();
    PDJOB_TRY(gpu, listen_unix(address.gpu_path));
  }
  const bool encrypt = options.config.tcp.encrypt;
  auto endpoint = std::make_unique<EndpointThread>(std::move(options), std::move(address));
  if (encrypt) {
    PDJOB_TRY_STATUS(endpoint->open_tls());
  }
  if (in_gpu) {
    PDJOB_TRY_STATUS(endpoint->open_gpu());
  }
  if (wanted == TransportKind::kNccl) {
    PDJOB_TRY_STATUS(endpoint->open_nccl());
  }
  if (tcp.valid()) {
    PDJOB_TRY_STATUS(endpoint->listen(std::move(tcp), wanted == TransportKind::kNccl
                                                          ? TransportKind::kNccl
                                                          : TransportKind::kTcp));
  }
  if (shm.valid()) {
    PDJOB_TRY_STATUS(endpoint->listen(std::move(shm), TransportKind::kShm));
  }
  if (gpu.valid()) {
    PDJOB_TRY_STATUS(endpoint->listen(std::move(gpu), TransportKind::kCudaIpc));
  }
  endpoint->run();
  return std::unique_ptr<KvEndpoint>(std::move(endpoint));
}

}  // namespace pdjob::kvtransfer
