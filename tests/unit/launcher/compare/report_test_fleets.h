// A comparison for tests of reports.
#pragma once

#include "launcher/compare/comparison.h"

namespace pdjob::launcher {

inline Comparison sample_comparison() {
  Comparison made{.source = "a<b>.yaml",
                  .load = "100 requests",
                  .model = "small, measured",
                  .slo = {.ttft = std::chrono::seconds(1), .itl = std::chrono::milliseconds(50)},
                  .seed = 7,
                  .notes = {"One router decides, not \"2\"."}};
  FleetFigures fleet{.name = "1 prefill + 1 decode", .requests = 100, .served = 99, .good = 80};
  fleet.roles[0] = {.workers = 1, .busy = 0.25, .queued = 1.5, .queued_max = 4};
  fleet.roles[1] = {.workers = 1, .busy = 0.5};
  fleet.goodput = 8;
  fleet.ttft = {.p50 = 0.1, .p90 = 0.9, .p99 = 1.25};
  fleet.itl = {.p50 = 0.01, .p90 = 0.02, .p99 = 0.03};
  fleet.ttft_shares = {{0.1, 0.5}, {0.9, 0.9}, {1.25, 1}};
  fleet.busy_over_time[0] = {{1, 0.2}, {2, 0.3}};
  made.job = fleet;
  fleet.name = "2 both, chunk 32";
  fleet.chunk = 32;
  fleet.good = 40;
  fleet.goodput = 4;
  fleet.roles = {};
  fleet.roles[2] = {.workers = 2, .busy = 0.75};
  fleet.busy_over_time = {};
  made.both = {fleet, fleet};
  made.both[1].chunk = 128;
  made.both[1].name = "2 both, chunk 128";
  return made;
}

}  // namespace pdjob::launcher
