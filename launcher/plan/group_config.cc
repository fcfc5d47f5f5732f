#include "launcher/plan/group_config.h"

#include <algorithm>
#include <iterator>
#include <ranges>

namespace pdjob::launcher {
namespace {

constexpr uint64_t kMemoryMibMax = 1ULL << 32;
constexpr size_t kClustersOfGroupMax = 64;
constexpr size_t kLabelsMax = 64;

void read_cluster(ConfigReader& in, GroupConfig& config) {
  constexpr FieldText kText{
      .doc =
          "Its workers run only there: the name of one of the job's clusters, or a list of "
          "names. Default: anywhere."};
  if (in.written("cluster").empty()) {
    in.field("cluster", config.clusters, kText);
    return;
  }
  std::string name;
  in.field("cluster", name, kText);
  config.clusters = {name};
}

void read_labels(ConfigReader& in, GroupConfig& config) {
  if (in.has("labels")) {
    config.labels.clear();  // A model replaces those of the job.
  }
  in.section("labels",
             {.doc = "Its workers run only on nodes with all these labels, each as NAME: VALUE."},
             [&](ConfigReader& section) {
               std::vector<std::string> names = section.written_keys();
               std::ranges::copy(std::views::keys(config.labels), std::back_inserter(names));
               for (const std::string& name : names) {
                 section.field(name, config.labels[name], {.doc = "A label."});
               }
             });
}

}  // namespace

void read(ConfigReader& in, GroupConfig& config) {
  in.field("min_workers", config.workers_min,
           {.doc = "With fewer nodes than it wants, the job starts with so many of these workers. "
                   "The others wait for nodes that join. 0: all must have a place."});
  in.field("spares", config.spares,
           {.doc = "So many workers more, warm and without requests. One serves at once when "
                   "another worker of the role is lost, and the one that comes back is the spare. "
                   "A job starts without those that have no place."},
           {0, kWorkersPerRoleMax});
  read_cluster(in, config);
  read_labels(in, config);
  in.field("arrange", config.arrange, {{"spread", Arrange::kSpread}, {"pack", Arrange::kPack}},
           {.doc = "spread: on many nodes, so that a lost node takes few workers. pack: on few."});
  in.field("memory_mib", config.memory_mib,
           {.doc = "Memory that a worker takes of its node, beside the model's file. 0: what its "
                   "KV takes there; nothing for an engine of another make.",
            .unit = "MiB"},
           {0, kMemoryMibMax});
  read(in, config.scaling);
}

void check(ConfigReader& in, const std::string& section, uint32_t workers,
           const GroupConfig& config) {
  if (config.workers_min > workers) {
    in.fail(section + ".min_workers", "must be at most `workers`, " + std::to_string(workers) +
                                          ", got " + std::to_string(config.workers_min));
  }
  if (config.spares > 0 && (workers == 0 || workers + config.spares > kWorkersPerRoleMax)) {
    in.fail(section + ".spares",
            workers == 0 ? "there are no workers to take over from"
                         : "with `workers`, must be at most " + std::to_string(kWorkersPerRoleMax));
  }
  check(in, section, workers, config.scaling);
  if (config.clusters.size() > kClustersOfGroupMax || config.labels.size() > kLabelsMax) {
    in.fail(section, "must name at most " + std::to_string(kClustersOfGroupMax) + " clusters and " +
                         std::to_string(kLabelsMax) + " labels");
  }
}

}  // namespace pdjob::launcher
