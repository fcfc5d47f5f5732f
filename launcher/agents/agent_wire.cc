#include "launcher/agents/agent_wire.h"

#include <array>
#include <cstdint>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/limits.h"
#include "launcher/placement/node_fields.h"
#include "net/control/process_spec.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

constexpr uint32_t kMagic = 0x676a6470;  // "pdjg" as bytes on the wire.
constexpr size_t kHeadBytes = 24;        // Magic, version, type, session, number.
constexpr FieldBounds kFacts{.text_bytes_max = kAgentTextBytesMax, .list_max = kNodeFactsMax};

template <class T, class Codec>
using Of = typename Codec::template Ref<T>;

template <class Codec>
void text(Codec& codec, Of<std::string, Codec> text) {
  codec.text(text, kAgentTextBytesMax);
}

template <class Codec>
void incarnation(Codec& codec, Of<Incarnation, Codec> incarnation) {
  codec.value(incarnation.value);
}

template <class Codec>
void fields(Codec& codec, Of<AgentHello, Codec> message) {
  text(codec, message.name);
  codec.value(message.instance);
  codec.value(message.session);
  codec.value(message.sign);
  text(codec, message.build);
  codec.value(message.cores);
  text(codec, message.cores_bound);
  codec.value(message.memory_bytes);
  text(codec, message.memory_bound);
  text_list(codec, message.gpus, kFacts);
  part_map(codec, message.gpu_parts, kFacts);
  label_list(codec, message.labels, kFacts);
  topology(codec, message.topology, message.gpus.size());
}
template <class Codec>
void fields(Codec& codec, Of<NodeReady, Codec> message) {
  text(codec, message.host);
  codec.list(message.running, kNodeProcessesMax, [](Codec& in, auto& process) {
    incarnation(in, process.incarnation);
    in.value(process.pid);
  });
  codec.list(message.doors, kNodeProcessesMax, [](Codec& in, auto& door) {
    text(in, door.first);
    in.value(door.second);
  });
}
template <class Codec>
void fields(Codec& codec, Of<NodeLeaving, Codec> message) {
  text(codec, message.why);
}
template <class Codec>
void fields(Codec& codec, Of<LogAnswered, Codec> message) {
  codec.value(message.ticket);
  codec.value(message.found);
  codec.value(message.from);
  codec.text(message.text, kLogPieceBytesMax);
}
template <class Codec>
void fields(Codec& codec, Of<Welcome, Codec> message) {
  text(codec, message.job);
  text(codec, message.host);
  codec.value(message.lease_ms);
  codec.value(message.orphan_timeout_ms);
  text(codec, message.owner);
  codec.value(message.launcher);
}
template <class Codec>
void fields(Codec& codec, Of<Refused, Codec> message) {
  text(codec, message.reason);
}
template <class Codec>
void fields(Codec& codec, Of<Goodbye, Codec> message) {
  codec.value(message.keep_ms);
}
template <class Codec>
void fields(Codec& codec, Of<OpenDoor, Codec> message) {
  text(codec, message.name);
  text(codec, message.host);
  codec.value(message.port);
  codec.value(message.shared);
}
template <class Codec>
void fields(Codec& codec, Of<CloseDoor, Codec> message) {
  text(codec, message.name);
}
template <class Codec>
void fields(Codec& codec, Of<StartProcess, Codec> message) {
  codec.value(message.incarnation);
  codec.text(message.spec, net::kSpecBytesMax);
}
template <class Codec>
void fields(Codec& codec, Of<SignalProcess, Codec> message) {
  codec.value(message.incarnation);
  codec.word(message.signal, Signal::kTerminate, Signal::kDumpStacks);
}
template <class Codec>
void fields(Codec& codec, Of<ReadLog, Codec> message) {
  codec.value(message.ticket);
  text(codec, message.process);
  codec.value(message.from);
}
template <class Codec>
void fields(Codec& codec, Of<Beat, Codec> message) {
  codec.value(message.received);
}
template <class Codec>
void fields(Codec& codec, Of<DoorOpened, Codec> message) {
  text(codec, message.name);
  codec.value(message.port);
}
template <class Codec>
void fields(Codec& codec, Of<DoorFailed, Codec> message) {
  text(codec, message.name);
  text(codec, message.reason);
}
template <class Codec>
void fields(Codec& codec, Of<Spawned, Codec> message) {
  incarnation(codec, message.incarnation);
  codec.value(message.pid);
}
template <class Codec>
void fields(Codec& codec, Of<SpawnFailed, Codec> message) {
  incarnation(codec, message.incarnation);
  text(codec, message.reason);
}
template <class Codec>
void fields(Codec& codec, Of<ProcessExited, Codec> message) {
  incarnation(codec, message.incarnation);
  text(codec, message.how);
  codec.value(message.crashed);
}

template <class Codec>
void fields(Codec& codec, Of<LookAtProcess, Codec> message) {
  codec.value(message.incarnation);
}
template <class Codec>
void fields(Codec& codec, Of<ProcessSeen, Codec> message) {
  incarnation(codec, message.incarnation);
  codec.value(message.signs.asleep);
  codec.value(message.signs.stopped);
  codec.value(message.signs.turns);
  codec.value(message.signs.at_ms);
  codec.value(message.signs.runnable);
  codec.value(message.signs.ran_us);
  codec.value(message.signs.waited_us);
  codec.value(message.signs.any_runnable);
  codec.value(message.signs.all_ran_us);
  codec.value(message.signs.all_waited_us);
}
template <class Codec>
void fields(Codec& codec, Of<SignAsked, Codec> message) {
  codec.value(message.sign);
}

// A message's type on the wire is its place in the variant plus one. The order is fixed within a
// version.
static_assert(std::variant_size_v<AgentMessage> == 21);

template <size_t... I>
AgentMessage blank(size_t index, std::index_sequence<I...>) {
  using Make = AgentMessage (*)();
  constexpr std::array<Make, sizeof...(I)> kMake = {
      +[] { return AgentMessage(std::in_place_index<I>); }...};
  return kMake[index]();
}

Error corrupt(std::string what) {
  return {ErrorCode::kCorrupt, "agent message: " + std::move(what)};
}

}  // namespace

std::string encode(const AgentFrame& frame) {
  std::string bytes;
  net::WireWriter writer(bytes);
  writer.value(kMagic);
  writer.value(kAgentWireVersion);
  writer.value(static_cast<uint16_t>(frame.message.index() + 1));
  writer.value(frame.session);
  writer.value(frame.number);
  std::visit([&writer](const auto& body) { fields(writer, body); }, frame.message);
  PDJOB_CHECK(bytes.size() <= limits::kControlMessageBytesMax, bytes.size());
  return bytes;
}

Result<AgentFrame> decode_agent_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes.size() > limits::kControlMessageBytesMax) {
    return corrupt(std::to_string(bytes.size()) + " bytes");
  }
  net::WireReader reader(bytes);
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t type = 0;
  AgentFrame frame;
  reader.value(magic);
  reader.value(version);
  reader.value(type);
  reader.value(frame.session);
  reader.value(frame.number);
  if (magic != kMagic) {
    return corrupt("wrong magic");
  }
  if (version != kAgentWireVersion) {
    return Error{ErrorCode::kUnsupported,
                 "the other end speaks version " + std::to_string(version) +
                     " of the agents' protocol, here is " + std::to_string(kAgentWireVersion) +
                     ": install the same pdjob on all nodes"};
  }
  constexpr size_t kTypes = std::variant_size_v<AgentMessage>;
  if (type < 1 || type > kTypes) {
    return corrupt("type " + std::to_string(type));
  }
  frame.message = blank(type - 1U, std::make_index_sequence<kTypes>());
  std::visit([&reader](auto& body) { fields(reader, body); }, frame.message);
  if (reader.failed() || !reader.at_end()) {
    return corrupt("type " + std::to_string(type) + " with wrong fields");
  }
  return frame;
}

}  // namespace pdjob::launcher
