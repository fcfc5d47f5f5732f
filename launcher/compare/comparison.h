// Comparison: a simulated load on the job of a file, and on the same number of workers that all do
// both. Equal seeds give equal figures. Pure, apart from the time that it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/compare/fleet_figures.h"
#include "launcher/compare/simulated_job.h"

namespace pdjob::launcher {

struct SimulationAsked {
  SimulatedJob job;
  simulation::RequestTrace load;
  simulation::Slo slo;
  uint64_t seed = 1;
  // Lines for the report.
  std::string source;  // The job's file.
  std::string load_text;
  std::string model_text;
};

struct Comparison {
  std::string source, load, model;
  simulation::Slo slo;
  uint64_t seed = 1;
  std::vector<std::string> notes;
  FleetFigures job;
  // Workers of both roles, by chunk. Of a job that is not disaggregated: the other chunks.
  std::vector<FleetFigures> both;
  size_t best = 0;  // Of these.

  bool disaggregated() const { return job.chunk == 0; }
  const FleetFigures& best_both() const { return both[best]; }
  // The first line of every report.
  std::string headline() const;
};

// Calls `progress` before each fleet.
Comparison compare(const SimulationAsked& asked,
                   const std::function<void(const std::string& fleet)>& progress);

}  // namespace pdjob::launcher
