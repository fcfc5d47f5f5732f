#include "launcher/job_clusters.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(JobClusters, WhatIsMissingNamesWhoCame) {
  const std::vector<ClusterConfig> clusters = {
      {.name = "here", .kind = ClusterKind::kLocal},
      {.name = "lab", .listen = "10.0.0.1:7700", .nodes = 2},
      {.name = "far", .listen = "10.0.0.1:7701", .nodes = 1}};
  const std::vector<Node> nodes = {{.name = "local", .cluster = "here"},
                                   {.name = "lab/a", .cluster = "lab"}};
  EXPECT_EQ(missing_nodes(clusters, nodes),
            "cluster lab: 1 of 2 nodes joined at 10.0.0.1:7700 (lab/a); cluster far: 0 of 1 nodes "
            "joined at 10.0.0.1:7701");
  EXPECT_EQ(missing_nodes({clusters[1]}, {{.name = "lab/a", .cluster = "lab"},
                                          {.name = "lab/b", .cluster = "lab"}}),
            "");
}

}  // namespace
}  // namespace pdjob::launcher
