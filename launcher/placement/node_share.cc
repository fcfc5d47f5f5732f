#include "launcher/placement/node_share.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/config/config_text.h"

namespace pdjob::launcher {
namespace {

constexpr uint64_t kNoGpuBound = std::numeric_limits<uint64_t>::max();

uint64_t missing(uint64_t wanted, int64_t free) {
  const uint64_t there = free > 0 ? static_cast<uint64_t>(free) : 0;
  return wanted > there ? wanted - there : 0;
}

std::string label_text(const std::pair<const std::string, std::string>& label) {
  std::string text = label.first;
  return text.append(": ").append(label.second);
}

// "0.5 of a GPU"; for whole ones "2 GPUs".
std::string gpu_count_text(uint64_t gpus, uint32_t percent) {
  return percent == kWholeGpu ? count_text(gpus, "GPU") : portion_text(percent) + " of a GPU";
}

}  // namespace

std::vector<PlacePart> Place::parts() const {
  std::vector<PlacePart> parts = {{node, gpus}};
  parts.insert(parts.end(), more.begin(), more.end());
  return parts;
}

void Place::add(PlacePart part) {
  if (node.empty()) {
    node = std::move(part.node);
    gpus = std::move(part.gpus);
  } else {
    more.push_back(std::move(part));
  }
}

bool Place::has_part_on(const std::string& of_node) const {
  return node == of_node || std::ranges::find(more, of_node, &PlacePart::node) != more.end();
}

std::string count_text(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string Shortfall::text() const {
  std::vector<std::string> parts;
  if (cores > 0) {
    parts.push_back(count_text(cores, "core"));
  }
  if (gpus > 0) {
    parts.push_back(gpu_count_text(gpus, gpu_percent));
  }
  if (memory_bytes > 0) {
    constexpr uint64_t kMiB = 1 << 20;
    parts.push_back(std::to_string((memory_bytes + kMiB - 1) / kMiB) + " MiB of memory");
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

std::vector<std::string> refusals(const Node& node, const Demand& demand) {
  std::vector<std::string> reasons;
  if (node.routers_only) {
    reasons.emplace_back("is for routers only");
  }
  if (!demand.clusters.empty() &&
      std::ranges::find(demand.clusters, node.cluster) == demand.clusters.end()) {
    reasons.push_back("is of cluster " + node.cluster);
  }
  for (const auto& label : demand.labels) {
    const auto found = node.labels.find(label.first);
    if (found == node.labels.end()) {
      reasons.push_back("has no label " + label_text(label));
    } else if (found->second != label.second) {
      reasons.push_back("has the label " + label_text(*found) + ", not " + label.second);
    }
  }
  return reasons;
}

void NodeShare::resize(const Node& node) {
  node_ = node;
  count_free_gpus();
}

void NodeShare::count_free_gpus() {
  const std::vector<GpuState> states = gpu_states();
  gpus_free_ = static_cast<uint64_t>(std::ranges::count(states, 0U, &GpuState::used));
  gpu_parts_free_.clear();
  for (const GpuState& state : states) {
    gpu_parts_free_.push_back(kWholeGpu - std::min(kWholeGpu, state.used));
  }
  near_gpus_free_ = node_.topology.gpus.empty() ? gpus_free_ : most_near_free(states);
}

std::vector<GpuState> NodeShare::gpu_states() const {
  std::vector<GpuState> states;
  for (const std::string& gpu : node_.gpus) {
    GpuState state{.used = kWholeGpu - percent_of(node_.gpu_parts, gpu)};
    if (const auto used = gpu_used_.find(gpu); used != gpu_used_.end()) {
      state.used += used->second;
    }
    if (states.size() < node_.topology.gpus.size()) {
      const GpuFacts& facts = node_.topology.gpus[states.size()];
      state.numa = facts.numa;
      state.island = facts.island;
    }
    states.push_back(state);
  }
  return states;
}

uint64_t NodeShare::gpu_room(const Demand& demand) const {
  if (!demand.shares_gpu()) {
    return demand.gpus == 0 ? kNoGpuBound : gpus_free_ / demand.gpus;
  }
  uint64_t room = 0;
  for (const uint32_t left : gpu_parts_free()) {
    room += left / demand.gpu_percent;
  }
  return room;
}

int64_t NodeShare::memory_free() const { return memory_for_files() - memory_used_; }

bool NodeShare::accepted_by(const Demand& demand) const { return refusals(node_, demand).empty(); }

uint64_t NodeShare::file_bytes_to_add(const Demand& demand) const {
  return demand.file.empty() || files_.contains(demand.file) ? 0 : demand.file_bytes;
}

Shortfall NodeShare::shortfall(const Demand& demand) const {
  const uint64_t gpus = demand.shares_gpu()
                            ? missing(1, static_cast<int64_t>(gpu_room(demand)))
                            : missing(demand.gpus, static_cast<int64_t>(gpus_free_));
  return {.cores = missing(demand.cores, cores_free()),
          .gpus = gpus,
          .gpu_percent = demand.gpu_percent,
          .memory_bytes = missing(demand.memory_bytes + file_bytes_to_add(demand), memory_free())};
}

Shortfall NodeShare::lack(const Demand& demand) const {
  if (!node_.overcommits) {
    return shortfall(demand);
  }
  return {.gpus = missing(demand.gpus, static_cast<int64_t>(node_.gpus.size())),
          .gpu_percent = demand.gpu_percent,
          .memory_bytes = missing(file_bytes_to_add(demand), memory_for_files())};
}

uint64_t NodeShare::room(const Demand& demand, bool overcommit, uint64_t enough) const {
  if (overcommit && node_.overcommits) {
    return lack(demand).none() ? enough : 0;
  }
  if (!shortfall(demand).none()) {
    return 0;
  }
  const auto times = [enough](int64_t free, uint64_t each) {
    return each == 0 ? enough : static_cast<uint64_t>(free) / each;
  };
  const auto memory = memory_free() - static_cast<int64_t>(file_bytes_to_add(demand));
  return std::min({enough, times(cores_free(), demand.cores), gpu_room(demand),
                   times(memory, demand.memory_bytes)});
}

PlacePart NodeShare::take(const Demand& demand) {
  std::vector<GpuState> states = gpu_states();
  if (demand.near == Near::kNothing) {
    std::ranges::for_each(states, [](GpuState& gpu) { gpu = {.used = gpu.used}; });
  }
  PlacePart part{.node = node_.name, .gpus = {}};
  const std::vector<size_t> chosen =
      demand.shares_gpu() ? std::vector<size_t>{choose_part(states, demand.gpu_percent)}
                          : choose_gpus(states, demand.gpus);
  for (const size_t place : chosen) {
    part.gpus.push_back(node_.gpus[place]);
  }
  take(part, demand);
  return part;
}

void NodeShare::take(const PlacePart& part, const Demand& demand) {
  cores_used_ += demand.cores;
  memory_used_ += static_cast<int64_t>(demand.memory_bytes);
  if (!demand.file.empty()) {
    File& file =
        files_.try_emplace(demand.file, File{.uses = 0, .bytes = demand.file_bytes}).first->second;
    file_bytes_ += ++file.uses == 1 ? static_cast<int64_t>(file.bytes) : 0;
  }
  for (const std::string& gpu : part.gpus) {
    gpu_used_[gpu] += demand.gpu_percent;
  }
  count_free_gpus();
}

void NodeShare::release(const PlacePart& part, const Demand& demand) {
  cores_used_ -= demand.cores;
  memory_used_ -= static_cast<int64_t>(demand.memory_bytes);
  if (const auto file = files_.find(demand.file); file != files_.end()) {
    if (--file->second.uses == 0) {
      file_bytes_ -= static_cast<int64_t>(file->second.bytes);
      files_.erase(file);
    }
  }
  for (const std::string& gpu : part.gpus) {
    if (const auto used = gpu_used_.find(gpu); used != gpu_used_.end()) {
      used->second -= std::min(used->second, demand.gpu_percent);
      if (used->second == 0) {
        gpu_used_.erase(used);
      }
    }
  }
  count_free_gpus();
}

}  // namespace pdjob::launcher
