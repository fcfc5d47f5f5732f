// The fields by which records and messages describe a node: its GPUs, its labels and what is near
// what. Each has bounds of its own. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/topology.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

struct FieldBounds {
  size_t text_bytes_max = 0;
  size_t list_max = 0;
};

using LabelPairs = std::vector<std::pair<std::string, std::string>>;
using PartPairs = std::vector<std::pair<std::string, uint32_t>>;

template <class Codec>
void text_list(Codec& codec, typename Codec::template Ref<std::vector<std::string>> texts,
               const FieldBounds& bounds) {
  codec.list(texts, bounds.list_max,
             [&bounds](Codec& in, auto& text) { in.text(text, bounds.text_bytes_max); });
}

template <class Codec>
void label_list(Codec& codec, typename Codec::template Ref<LabelPairs> labels,
                const FieldBounds& bounds) {
  codec.list(labels, bounds.list_max, [&bounds](Codec& in, auto& label) {
    in.text(label.first, bounds.text_bytes_max);
    in.text(label.second, bounds.text_bytes_max);
  });
}

template <class Codec>
void part_list(Codec& codec, typename Codec::template Ref<PartPairs> parts,
               const FieldBounds& bounds) {
  codec.list(parts, bounds.list_max, [&bounds](Codec& in, auto& part) {
    in.text(part.first, bounds.text_bytes_max);
    in.value(part.second);
    in.require(part.second > 0 && part.second < kWholeGpu);
  });
}

// `gpus`: how many GPUs the node has.
template <class Codec>
void topology(Codec& codec, typename Codec::template Ref<NodeTopology> topology, size_t gpus) {
  codec.list(topology.gpus, gpus, [](Codec& in, auto& gpu) {
    in.value(gpu.numa);
    in.value(gpu.island);
    text_list(in, gpu.nics, {.text_bytes_max = kNicNameBytesMax, .list_max = kNicsOfGpuMax});
  });
  codec.require(topology.gpus.empty() || topology.gpus.size() == gpus);
  codec.list(topology.numa, kNumaNodesMax, [](Codec& in, auto& numa) {
    in.value(numa.number);
    in.text(numa.cpus, kCpuListBytesMax);
  });
  codec.value(topology.gpu_memory_bytes);
}

// A map is a list of its pairs.
inline void label_map(net::WireWriter& writer, const std::map<std::string, std::string>& labels,
                      const FieldBounds& bounds) {
  label_list(writer, LabelPairs(labels.begin(), labels.end()), bounds);
}
inline void label_map(net::WireReader& reader, std::map<std::string, std::string>& labels,
                      const FieldBounds& bounds) {
  LabelPairs list;
  label_list(reader, list, bounds);
  labels = {list.begin(), list.end()};
}
inline void part_map(net::WireWriter& writer, const GpuParts& parts, const FieldBounds& bounds) {
  part_list(writer, PartPairs(parts.begin(), parts.end()), bounds);
}
inline void part_map(net::WireReader& reader, GpuParts& parts, const FieldBounds& bounds) {
  PartPairs list;
  part_list(reader, list, bounds);
  parts = {list.begin(), list.end()};
}

}  // namespace pdjob::launcher
