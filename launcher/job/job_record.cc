#include "launcher/job/job_record.h"

#include <map>
#include <utility>

#include "common/limits.h"
#include "net/control/wire.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kTextBytesMax = 4096;
constexpr size_t kListMax = 4096;
constexpr size_t kEntryBytesMax = 64 * limits::kKiB;

template <class T, class Codec>
using Of = typename Codec::template Ref<T>;

template <class Codec>
void text(Codec& codec, Of<std::string, Codec> text) {
  codec.text(text, kTextBytesMax);
}
template <class Codec>
void texts(Codec& codec, Of<std::vector<std::string>, Codec> list) {
  codec.list(list, kListMax, [](Codec& in, auto& one) { text(in, one); });
}

// Maps are lists of pairs.
using Pairs = std::vector<std::pair<std::string, std::string>>;
template <class Codec>
void pairs(Codec& codec, Of<Pairs, Codec> list) {
  codec.list(list, kListMax, [](Codec& in, auto& pair) {
    text(in, pair.first);
    text(in, pair.second);
  });
}
void labels(net::WireWriter& writer, const std::map<std::string, std::string>& labels) {
  pairs(writer, Pairs(labels.begin(), labels.end()));
}
void labels(net::WireReader& reader, std::map<std::string, std::string>& labels) {
  Pairs list;
  pairs(reader, list);
  labels = {list.begin(), list.end()};
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

template <class Codec>
void fields(Codec& codec, Of<Node, Codec> node) {
  text(codec, node.name);
  text(codec, node.host);
  codec.value(node.cores);
  codec.value(node.memory_bytes);
  texts(codec, node.gpus);
  text(codec, node.cluster);
  labels(codec, node.labels);
  codec.value(node.routers_only);
  codec.value(node.overcommits);
}

template <class Codec>
void fields(Codec& codec, Of<Demand, Codec> demand) {
  codec.value(demand.cores);
  codec.value(demand.gpus);
  codec.value(demand.memory_bytes);
  text(codec, demand.file);
  codec.value(demand.file_bytes);
  text(codec, demand.role);
  text(codec, demand.model);
  texts(codec, demand.clusters);
  labels(codec, demand.labels);
  codec.word(demand.arrange, Arrange::kSpread, Arrange::kPack);
}

template <class Codec>
void fields(Codec& codec, Of<ProcessRecord, Codec> process) {
  text(codec, process.plan.name);
  codec.word(process.plan.role, net::Role::kPrefill, net::Role::kBatch);
  text(codec, process.plan.model);
  fields(codec, process.plan.demand);
  text(codec, process.plan.place.node);
  texts(codec, process.plan.place.gpus);
  codec.word(process.state, ProcessState::kWaiting, ProcessState::kBackoff);
  codec.word(process.fate, Fate::kRestart, Fate::kChangeRole);
  codec.word(process.next_role, net::Role::kPrefill, net::Role::kBatch);
  codec.value(process.keeps_model);
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
  codec.value(record.incarnations_made);
  codec.list(record.nodes, kListMax, [](Codec& in, auto& node) { fields(in, node); });
  codec.list(record.processes, kListMax, [](Codec& in, auto& process) { fields(in, process); });
}

}  // namespace

void write_fields(net::WireWriter& writer, const JobRecord& record) { fields(writer, record); }
void write_fields(net::WireWriter& writer, const Node& node) { fields(writer, node); }
void read_fields(net::WireReader& reader, JobRecord& record) { fields(reader, record); }
void read_fields(net::WireReader& reader, Node& node) { fields(reader, node); }

}  // namespace pdjob::launcher
