#include "net/discovery_pings.h"

#include <algorithm>
#include <set>

#include <zmq.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

// Frames queued for a router that is not there yet; later ones repeat their content.
constexpr int kQueueMax = 4;

// msgpack's str 8, whose length is one byte.
void append_text(std::string& frame, std::string_view text) {
  PDJOB_CHECK(text.size() < 256, text.size());
  frame += '\xd9';
  frame += static_cast<char>(text.size());
  frame += text;
}

std::string address_of(const WorkerEntry& worker) {
  return worker.host + ":" + std::to_string(worker.port);
}

}  // namespace

std::string discovery_ping(const WorkerEntry& worker) {
  constexpr char kMapOfThree = '\x83';
  std::string frame(1, kMapOfThree);
  append_text(frame, "type");
  append_text(frame, worker.role == Role::kPrefill ? "P" : "D");
  for (const char* key : {"http_address", "zmq_address"}) {
    append_text(frame, key);
    append_text(frame, address_of(worker));
  }
  return frame;
}

DiscoveryPings::DiscoveryPings(uint16_t port)
    : endpoint_("tcp://127.0.0.1:" + std::to_string(port)), context_(zmq_ctx_new()) {
  PDJOB_CHECK(context_ != nullptr);
}

DiscoveryPings::~DiscoveryPings() {
  for (const auto& [identity, socket] : sockets_) {
    zmq_close(socket);
  }
  zmq_ctx_term(context_);  // Does not wait: all sockets have linger 0.
}

void* DiscoveryPings::open_socket(const std::string& identity) {
  void* const socket = zmq_socket(context_, ZMQ_DEALER);
  PDJOB_CHECK(socket != nullptr, zmq_strerror(zmq_errno()));
  const int linger = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &kQueueMax, sizeof kQueueMax);
  zmq_setsockopt(socket, ZMQ_ROUTING_ID, identity.data(), identity.size());
  PDJOB_CHECK(zmq_connect(socket, endpoint_.c_str()) == 0, endpoint_);
  return socket;
}

void DiscoveryPings::send(std::span<const WorkerEntry> workers) {
  std::set<std::string> there;
  for (const WorkerEntry& worker : workers) {
    const std::string identity = *there.insert(address_of(worker)).first;
    void*& socket = sockets_[identity];
    if (socket == nullptr) {
      socket = open_socket(identity);
    }
    const std::string frame = discovery_ping(worker);
    zmq_send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT);
  }
  std::erase_if(sockets_, [&](const auto& entry) {
    const bool gone = !there.contains(entry.first);
    if (gone) {
      zmq_close(entry.second);
    }
    return gone;
  });
}

}  // namespace pdjob::net
