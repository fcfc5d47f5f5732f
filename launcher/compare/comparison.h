// Comparison: a simulated load on the job of a file, and on the same number of workers that all do
// both. A job that scales by itself is compared by scaled_comparison.h. Equal seeds give equal
// figures. Pure, apart from the time that it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  // If the job scales: the fleet of fixed size beside it. Empty: no fleet that was tried serves as
  // many requests.
  std::optional<FleetFigures> fixed;
  // Workers of both roles, by chunk; if the job has such workers, the other chunks. Empty if it
  // scales.
  std::vector<FleetFigures> both;
  size_t best = 0;  // Of these.

  bool scales() const { return both.empty(); }
  bool disaggregated() const { return job.chunk == 0; }
  const FleetFigures& best_both() const { return both[best]; }
  // The fleet beside the job; null: there is none.
  const FleetFigures* other() const { return scales() ? (fixed ? &*fixed : nullptr) : &both[best]; }
  // The first line of every report.
  std::string headline() const;
};

// With what was asked, and no fleet yet.
Comparison comparison_of(const SimulationAsked& asked);

// One simulation. `rate`: requests come so many times as fast as in the load.
FleetFigures simulated(const SimulationAsked& asked, const simulation::TraceJob& job,
                       double rate = 1);

// Calls `progress` before each fleet. Requires: the job keeps its size.
Comparison compare(const SimulationAsked& asked,
                   const std::function<void(const std::string& fleet)>& progress);

}  // namespace pdjob::launcher
