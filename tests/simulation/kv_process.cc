#include "tests/simulation/kv_process.h"

#include <map>
#include <utility>

#include "kvtransfer/open_transport.h"

namespace pdjob::simulation {
namespace {

using kvtransfer::EndpointAddress;
using kvtransfer::TransportTraits;

std::string listener_name(const EndpointAddress& address, const TransportTraits& transport) {
  return transport.unix_name != nullptr ? address.*transport.unix_name : address.host;
}

// Issuing takes long, and the bits of keys decide nothing.
const kvtransfer::LinkKeys& keys_of(const std::string& name) {
  static const kvtransfer::LinkAuthority authority("secret");
  static std::map<std::string, kvtransfer::LinkKeys> issued;
  auto known = issued.find(name);
  if (known == issued.end()) {
    known = issued.emplace(name, authority.issue(name)).first;
  }
  return known->second;
}

}  // namespace

KvProcess::KvProcess(KvScene& scene, const std::string& name, bool slow, uint64_t seed, Emit emit)
    : scene_(scene),
      process_(name, {.loop = scene.loop,
                      .turn_max = slow ? Duration(std::chrono::milliseconds(2))
                                       : std::chrono::microseconds(20),
                      .seed = seed}),
      address_{.engine_id = name, .host = name, .unix_path = "@" + name, .host_id = "machine"} {
  const auto transports = *kvtransfer::transports_of(scene.config, std::nullopt);
  if (scene.config.transport == kvtransfer::TransportKind::kNccl) {
    nccl_ = *kvtransfer::NcclLinks::open(
        process_, scene.config.nccl,
        [this](kvtransfer::NcclDevice::Options options) {
          return Result(scene_.nccl.open(process_.make_thread(), std::move(options)));
        },
        [this] { expect(false, "NCCL comes back from every abort, but"); });
  }
  endpoint_.emplace(kvtransfer::EndpointParts{
      .timers = process_,
      .network = *this,
      .config = scene.config,
      .transports = transports,
      .identity = {.engine_id = name, .keys = keys_of(name), .fingerprint = {}},
      .host_id = address_.host_id,
      .emit = std::move(emit),
      .open_transport = scene.open_transport,
      .devices = {.nccl = nccl_.get()}});
  for (const TransportTraits& each : transports) {
    scene_.sockets.listen(listener_name(address_, each), process_,
                          [this, kind = each.kind](SimSockets::Socket socket) {
                            endpoint_->sender().accept(std::move(socket), kind);
                          });
  }
}

// As by kill -9: the kernel closes its sockets, and nobody hears anything else.
void KvProcess::die() {
  process_.die();
  scene_.sockets.forget(process_);
  endpoint_.reset();
  nccl_.reset();
}

Result<std::unique_ptr<kvtransfer::LinkSocket>> KvProcess::connect(
    const EndpointAddress& peer, const TransportTraits& transport) {
  trace("connects to " + peer.engine_id);
  return scene_.sockets.connect(
      listener_name(peer, transport), process_,
      transport.unix_name != nullptr ? SimSockets::Reach::kMachine : SimSockets::Reach::kNetwork);
}

}  // namespace pdjob::simulation
