#include "launcher/job/job_record.h"

#include <bit>
#include <utility>

#include "common/limits.h"
#include "launcher/job/time_fields.h"
#include "launcher/placement/node_fields.h"
#include "net/control/wire.h"

namespace pdjob::launcher {

namespace {

// A text of the job file is no longer than the file, and a path no longer than the two that it is
// made of. A label, a GPU or a cluster takes a line of the file, or is a fact of an agent.
constexpr size_t kTextBytesMax = 2 * limits::kConfigBytesMax;
constexpr size_t kListMax = limits::kConfigBytesMax;
constexpr FieldBounds kBounds{.text_bytes_max = kTextBytesMax, .list_max = kListMax};
constexpr size_t kEntryBytesMax = 64 * limits::kKiB;

template <class T, class Codec>
using Of = typename Codec::template Ref<T>;

template <class Codec>
void text(Codec& codec, Of<std::string, Codec> text) {
  codec.text(text, kTextBytesMax);
}

// An entry is the message that it came with.
void entry(net::WireWriter& writer, const net::WorkerEntry& entry) {
  writer.text(net::encode(net::Registered{.worker = entry}), kEntryBytesMax);
}
void entry(net::WireReader& reader, net::WorkerEntry& entry) {
  std::string bytes;
  reader.text(bytes, kEntryBytesMax);
  if (auto message = net::decode(std::as_bytes(std::span(bytes.data(), bytes.size())))) {
    if (auto* registered = std::get_if<net::Registered>(&*message)) {
      entry = std::move(registered->worker);
    }
  }
}

void number(net::WireWriter& writer, double number) {
  writer.value(std::bit_cast<uint64_t>(number));
}
void number(net::WireReader& reader, double& number) {
  uint64_t bits = 0;
  reader.value(bits);
  number = std::bit_cast<double>(bits);
}

template <class Codec>
void fields(Codec& codec, Of<NodeFaults, Codec> known) {
  text(codec, known.node);
  number(codec, known.faults);
  instant(codec, known.at);
}

template <class Codec>
void fields(Codec& codec, Of<Node, Codec> node) {
  text(codec, node.name);
  text(codec, node.host);
  codec.value(node.cores);
  text(codec, node.cores_bound);
  codec.value(node.memory_bytes);
  text(codec, node.memory_bound);
  text_list(codec, node.gpus, kBounds);
  part_map(codec, node.gpu_parts, kBounds);
  text(codec, node.cluster);
  label_map(codec, node.labels, kBounds);
  codec.value(node.routers_only);
  codec.value(node.overcommits);
  topology(codec, node.topology, node.gpus.size());
}

template <class Codec>
void fields(Codec& codec, Of<Demand, Codec> demand) {
  codec.value(demand.parts);
  codec.value(demand.cores);
  codec.value(demand.gpus);
  codec.value(demand.gpu_percent);
  codec.value(demand.lends);
  codec.value(demand.memory_bytes);
  text(codec, demand.file);
  codec.value(demand.file_bytes);
  text(codec, demand.role);
  text(codec, demand.model);
  text_list(codec, demand.clusters, kBounds);
  label_map(codec, demand.labels, kBounds);
  codec.word(demand.arrange, Arrange::kSpread, Arrange::kPack);
  codec.word(demand.near, Near::kNothing, Near::kAll);
}

template <class Codec>
void fields(Codec& codec, Of<ProcessRecord, Codec> process) {
  text(codec, process.name);
  codec.word(process.role, net::Role::kPrefill, net::Role::kStore);
  text(codec, process.model);
  fields(codec, process.demand);
  text(codec, process.place.node);
  text_list(codec, process.place.gpus, kBounds);
  codec.list(process.place.more, kNodesMax, [](Codec& in, auto& part) {
    text(in, part.node);
    text_list(in, part.gpus, kBounds);
  });
  text(codec, process.spec);
  codec.word(process.state, ProcessState::kWaiting, ProcessState::kBackoff);
  codec.word(process.fate, Fate::kRestart, Fate::kChangeRole);
  codec.word(process.next_role, net::Role::kPrefill, net::Role::kStore);
  codec.value(process.keeps_model);
  codec.value(process.spare);
  codec.value(process.weights_order);
  text(codec, process.next_version);
  text(codec, process.next_engine_id);
  codec.value(process.incarnation.value);
  text(codec, process.engine_id);
  codec.value(process.restarts);
  codec.value(process.crashes);
  codec.value(process.hangs);
  entry(codec, process.entry);
}

template <class Codec>
void fields(Codec& codec, Of<JobRecord, Codec> record) {
  codec.value(record.ready);
  codec.value(record.warm);
  codec.value(record.incarnations_made);
  text(codec, record.weights.path);
  text(codec, record.weights.version);
  text(codec, record.weights.digest);
  codec.list(record.nodes, kNodesMax, [](Codec& in, auto& node) { fields(in, node); });
  codec.list(record.trust, NodeTrust::kNodesMax, [](Codec& in, auto& known) { fields(in, known); });
  codec.list(record.processes, kProcessesMax,
             [](Codec& in, auto& process) { fields(in, process); });
  codec.list(record.sizes, kListMax, [](Codec& in, auto& size) {
    text(in, size.first);
    in.value(size.second);
  });
}

}  // namespace

void write_fields(net::WireWriter& writer, const JobRecord& record) { fields(writer, record); }
void write_fields(net::WireWriter& writer, const Node& node) { fields(writer, node); }
void read_fields(net::WireReader& reader, JobRecord& record) { fields(reader, record); }
void read_fields(net::WireReader& reader, Node& node) { fields(reader, node); }

}  // namespace pdjob::launcher
