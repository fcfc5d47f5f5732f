// Measures how long it takes to place the groups of a job on simulated nodes, and then to place one
// more worker. Half of the nodes have GPUs, in two islands; the nodes stand in four clusters.
//
//   placement_bench [--nodes N] [--workers N]
//
// Without arguments: 2,000 nodes with a usual job, with 10,000 workers, with 10,000 workers for
// which there is no place, and with three groups that would have to fill nodes of 30 sizes to 99.9
// %.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/os/real_clock.h"
#include "launcher/placement/gang.h"

namespace pdjob::launcher {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

std::vector<Node> make_nodes(size_t count) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < count; ++i) {
    Node node{.name = "node-" + std::to_string(i),
              .host = "10.0.0.1",
              .cores = 32,
              .memory_bytes = 256 * kGiB,
              .gpus = {},
              .cluster = "cluster-" + std::to_string(i % 4),
              .labels = {{"rack", std::to_string(i / 40)}, {"disk", "nvme"}}};
    for (uint32_t gpu = 0; gpu < 8 && i % 2 == 0; ++gpu) {
      node.gpus.push_back(std::to_string(gpu));
      node.topology.gpus.push_back(
          {.numa = gpu / 4, .island = gpu / 4, .nics = {"mlx5_" + std::to_string(gpu)}});
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Group> make_groups(uint32_t workers, uint32_t cores) {
  std::vector<Group> groups;
  for (const char* role : {"prefill", "decode"}) {
    const bool prefill = groups.empty();
    groups.push_back({.name = role,
                      .demand = {.cores = cores,
                                 .gpus = prefill ? 1U : 0U,
                                 .memory_bytes = 4 * kGiB,
                                 .file = "/models/m.gguf",
                                 .file_bytes = 40 * kGiB,
                                 .role = role,
                                 .model = "m",
                                 .labels = {{"disk", "nvme"}}},
                      .workers = workers / 2,
                      .workers_min = workers / 2});
  }
  return groups;
}

void measure(size_t nodes, uint32_t workers, uint32_t cores) {
  const std::vector<Node> machines = make_nodes(nodes);
  const std::vector<Group> groups = make_groups(workers, cores);
  const Instant begun = real_now();
  Placement placement(machines);
  const auto places = place_together(placement, groups);
  const Instant placed = real_now();
  const auto one_more = placement.take(groups.back().demand);
  const Instant ended = real_now();
  std::printf("%6zu nodes, %6u workers with %u cores: %s in %.3f s; one more%s in %.0f us\n", nodes,
              workers, cores, places ? "placed" : "refused", seconds(placed - begun),
              one_more ? "" : " refused", 1e6 * seconds(ended - placed));
  if (!places) {
    std::printf("  %s\n", places.error().message.c_str());
  }
}

void measure_puzzle(size_t nodes) {
  std::vector<Node> machines = make_nodes(nodes);
  uint32_t left = 0;
  for (size_t i = 0; i < nodes; ++i) {
    machines[i].cores = static_cast<uint32_t>(60 + i % 30);
    left += machines[i].cores;
  }
  left -= left / 1000;
  std::vector<Group> groups;
  for (const uint32_t cores : {7U, 11U, 13U}) {
    const uint32_t workers = (cores == 13 ? left : left / 3) / cores;
    left -= cores * workers;
    groups.push_back({.name = "with " + std::to_string(cores) + " cores",
                      .demand = {.cores = cores, .role = std::to_string(cores), .model = "m"},
                      .workers = workers,
                      .workers_min = workers});
  }
  const Instant begun = real_now();
  Placement placement(machines);
  const auto places = place_together(placement, groups);
  std::printf("%6zu nodes, a puzzle: %s in %.3f s\n", nodes,
              places ? "placed" : places.error().message.c_str(), seconds(real_now() - begun));
}

uint32_t option(int argc, char** argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) {
      return static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    }
  }
  return 0;
}

}  // namespace
}  // namespace pdjob::launcher

int main(int argc, char** argv) {
  using pdjob::launcher::measure;
  using pdjob::launcher::measure_puzzle;
  using pdjob::launcher::option;
  constexpr size_t kNodes = 2000;
  const uint32_t nodes = option(argc, argv, "--nodes");
  const uint32_t workers = option(argc, argv, "--workers");
  if (nodes > 0 || workers > 0) {
    measure(nodes > 0 ? nodes : kNodes, workers > 0 ? workers : 100, 4);
    return 0;
  }
  measure(kNodes, 100, 4);
  measure(kNodes, 10'000, 4);
  measure(kNodes, 10'000, 7);  // Four on a node: some workers have no place.
  measure_puzzle(kNodes);
  return 0;
}
