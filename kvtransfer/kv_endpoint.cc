#include "kvtransfer/kv_endpoint.h"

#include <cstdio>
#include <fstream>
#include <thread>

#include <sys/epoll.h>
#include <sys/stat.h>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "common/random.h"
#include "gpu/gpu.h"
#include "kvtransfer/link/socket.h"
#include "kvtransfer/link/stream_socket.h"
#include "kvtransfer/nccl/nccl_links.h"
#include "kvtransfer/open_transport.h"
#include "kvtransfer/session/endpoint.h"

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

// The sockets of an endpoint. Loop-bound.
class SocketNetwork final : public LinkNetwork {
 public:
  SocketNetwork(net::EventLoop& loop, bool loopback_only)
      : loop_(loop), loopback_only_(loopback_only) {}

  // Before the first link. Links of the kinds that `which` names are then encrypted.
  Status encrypt(const TlsKey& key, Encrypt which) {
    PDJOB_TRY(tls_, TlsContext::open({.key = key}));
    which_ = which;
    return ok();
  }

  // Listens where `address` says, and completes it.
  Result<Fd> listen(const TransportTraits& transport, EndpointAddress& address) const {
    if (transport.unix_name != nullptr) {
      address.*transport.unix_name = random_socket_name();
      return listen_unix(address.*transport.unix_name);
    }
    PDJOB_TRY(Fd socket, listen_tcp(address.host, address.port));
    PDJOB_TRY(address.port, bound_port(socket));
    return socket;
  }

  Result<std::unique_ptr<LinkSocket>> connect(const EndpointAddress& peer,
                                              const TransportTraits& transport) override {
    PDJOB_TRY(Fd socket, transport.unix_name != nullptr ? connect_unix(peer.*transport.unix_name)
                                                        : connect_tcp(peer.host, peer.port));
    const bool plain = is_plain(transport, socket, peer.host);
    return wrap(std::move(socket), plain, TlsSide::kInitiator);
  }

  std::unique_ptr<LinkSocket> accept(Fd socket, const TransportTraits& transport) {
    if (transport.unix_name == nullptr) {
      tune_tcp(socket);
    }
    const bool plain = is_plain(transport, socket, "");
    return wrap(std::move(socket), plain, TlsSide::kAcceptor);
  }

 private:
  // Both ends must come to the same answer.
  bool is_plain(const TransportTraits& transport, const Fd& socket,
                const std::string& peer_host) const {
    return tls_ == nullptr || transport.unix_name != nullptr ||
           (which_ == Encrypt::kAuto && stays_here(socket, peer_host));
  }

  std::unique_ptr<LinkSocket> wrap(Fd socket, bool plain, TlsSide side) {
    return std::make_unique<StreamSocket>(loop_,
                                          StreamSocket::Options{.socket = std::move(socket),
                                                                .side = side,
                                                                .tls = plain ? nullptr : tls_.get(),
                                                                .loopback_only = loopback_only_});
  }

  net::EventLoop& loop_;
  const bool loopback_only_;
  Encrypt which_ = Encrypt::kNever;
  std::unique_ptr<TlsContext> tls_;
};

// Accepts links of one transport. Loop-bound.
class Listener final : private net::FdHandler {
 public:
  Listener(Fd socket, const TransportTraits& transport, SocketNetwork& network, Sender& sender)
      : socket_(std::move(socket)), transport_(transport), network_(network), sender_(sender) {}

  Status watch(net::EventLoop& loop) { return loop.watch(socket_.get(), EPOLLIN, *this); }

 private:
  void on_ready(uint32_t /*epoll_events*/) override {
    for (Fd socket = accept_next(socket_); socket.valid(); socket = accept_next(socket_)) {
      sender_.accept(network_.accept(std::move(socket), transport_), transport_.kind);
    }
  }

  const Fd socket_;
  const TransportTraits transport_;
  SocketNetwork& network_;
  Sender& sender_;
};

class EndpointThread final : public KvEndpoint {
 public:
  explicit EndpointThread(bool loopback_only) : network_(loop_, loopback_only) {}

  ~EndpointThread() override {
    loop_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Status open(EndpointOptions options) {
    const KvTransferConfig& config = options.config;
    PDJOB_TRY(std::vector<TransportTraits> transports, transports_of(config, options.device));
    address_ = {.engine_id = options.engine_id,
                .host = config.listen_host.empty() ? "127.0.0.1" : config.listen_host,
                .port = config.listen_port,
                .host_id = machine_id()};
    std::vector<Fd> sockets;
    for (const TransportTraits& each : transports) {
      PDJOB_TRY(Fd socket, network_.listen(each, address_));
      sockets.push_back(std::move(socket));
    }
    const LinkKeys keys = options.keys ? *options.keys : LinkAuthority("").issue(options.engine_id);
    if (options.keys && config.tcp.encrypt != Encrypt::kNever) {
      PDJOB_TRY_STATUS(network_.encrypt(keys.tls, config.tcp.encrypt));
    }
    if (options.device) {
      PDJOB_TRY(gpu_, Gpu::open(config.nccl.cuda.library, *options.device));
    }
    if (config.transport == TransportKind::kNccl) {
      PDJOB_TRY(nccl_, NcclLinks::open(loop_, config.nccl));
    }
    endpoint_.emplace(EndpointParts{.timers = loop_,
                                    .network = network_,
                                    .config = config,
                                    .transports = transports,
                                    .identity = {.engine_id = options.engine_id,
                                                 .keys = keys,
                                                 .fingerprint = std::move(options.fingerprint)},
                                    .host_id = address_.host_id,
                                    .emit = std::move(options.sink),
                                    .open_transport = options.open_transport
                                                          ? std::move(options.open_transport)
                                                          : TransportOpener(open_transport),
                                    .device = options.device,
                                    .devices = {.nccl = nccl_.get(), .gpu = gpu_.get()}});
    for (size_t i = 0; i < sockets.size(); ++i) {
      listeners_.push_back(std::make_unique<Listener>(std::move(sockets[i]), transports[i],
                                                      network_, endpoint_->sender()));
      PDJOB_TRY_STATUS(listeners_.back()->watch(loop_));
    }
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "kv");
      loop_.run();
    });
    return ok();
  }

  const EndpointAddress& address() const override { return address_; }

  void offer(TransferId id, Region source, Instant deadline, OfferTerms terms) override {
    loop_.post([=, this, source = std::move(source)]() mutable {
      endpoint_->sender().offer(id, std::move(source), deadline, terms);
    });
  }
  void refuse(TransferId id, Error reason) override {
    loop_.post([=, this] { endpoint_->sender().refuse(id, reason); });
  }
  void rows_ready(TransferId id, uint32_t ready) override {
    loop_.post([=, this] { endpoint_->sender().rows_ready(id, ready); });
  }
  void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) override {
    loop_.post([=, this, tail = std::move(tail), now = real_now()]() mutable {
      endpoint_->sender().commit(id, rows, std::move(tail), now);
    });
  }
  void withdraw(TransferId id, Error reason) override {
    loop_.post([=, this] { endpoint_->sender().withdraw(id, reason); });
  }
  void await(TransferId id, EndpointAddress peer, Instant until) override {
    loop_.post([=, this] { endpoint_->receiver().await(id, peer, until); });
  }
  void fetch(TransferId id, EndpointAddress peer, Region target, uint32_t rows,
             Instant deadline) override {
    loop_.post([=, this, target = std::move(target)]() mutable {
      endpoint_->receiver().fetch(id, peer, std::move(target), rows, deadline);
    });
  }
  void cancel(TransferId id) override {
    loop_.post([=, this] { endpoint_->receiver().cancel(id); });
  }
  void tell(EndpointAddress peer, BlockNews news) override {
    loop_.post([=, this, news = std::move(news)]() mutable {
      endpoint_->receiver().tell(peer, std::move(news));
    });
  }

  void report_pairs(std::function<void(std::vector<PairStats>)> done) override {
    loop_.post([this, done = std::move(done)] { done(endpoint_->pairs()); });
  }

  EndpointStats stats() const override { return endpoint_->stats(); }
  Duration standstill() const override { return loop_.turn_lasted(); }

 private:
  net::EventLoop loop_;
  SocketNetwork network_;
  EndpointAddress address_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<NcclLinks> nccl_;
  std::optional<Endpoint> endpoint_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KvEndpoint>> KvEndpoint::start(EndpointOptions options) {
  if (encode(options.fingerprint).size() > limits::kLinkMessageBytesMax / 2) {
    return Error{ErrorCode::kInvalidArgument, "the KV fingerprint is too long"};
  }
  if (options.config.tcp.encrypt == Encrypt::kAlways && !options.keys) {
    return Error{ErrorCode::kInvalidArgument,
                 "kvtransfer.tcp.encrypt needs the keys of a job: a worker started by hand has "
                 "them by --key-file, and else its peers are on this machine"};
  }
  auto endpoint = std::make_unique<EndpointThread>(!options.keys);
  PDJOB_TRY_STATUS(endpoint->open(std::move(options)));
  return std::unique_ptr<KvEndpoint>(std::move(endpoint));
}

}  // namespace pdjob::kvtransfer
