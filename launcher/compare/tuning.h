// Tuning: which fleet a load needs, found by simulations that all play the same load with the same
// seed. Equal seeds give equal answers. Pure, apart from the time that it takes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/compare/comparison.h"
#include "launcher/compare/fleet_search.h"

namespace pdjob::launcher {

struct TuningAsked {
  SimulationAsked simulation;
  FleetSearchOptions search;
  uint32_t workers = 0;  // Exactly so many; 0: as few as are enough.
  // Which figures the answer has: of the best fleet only, or also of those beside it.
  enum class Describes { kBest, kAll };
  Describes describes = Describes::kAll;
};

// A fleet near the answer, and what it does.
struct Neighbour {
  std::string what;  // "one decode worker less"
  FleetFigures figures;
};

struct Tuning {
  std::string source, load, model;
  simulation::Slo slo;
  uint64_t seed = 1;
  std::vector<std::string> notes;
  double share = 0, margin = 0;  // As asked.
  uint32_t workers_asked = 0;
  uint32_t workers_max = 0;
  FleetAnswer answer;
  // Of the load itself, without the margin.
  std::optional<FleetFigures> best, runner_up;
  std::vector<Neighbour> neighbours;

  // The first line of every report.
  std::string headline() const;
};

// Of the job of the file, one with these workers and settings.
simulation::TraceJob job_of(const simulation::TraceJob& job, const Fleet& fleet);
// The keys that make a job file this fleet: "decode.workers=3".
std::vector<std::string> fleet_settings(const Fleet& fleet);

// The chunks and numbers of sequences that are tried.
FleetSearchOptions search_options(const simulation::TraceJob& job);

// Calls `progress` before each simulation.
Tuning tune(const TuningAsked& asked, const std::function<void(const std::string&)>& progress);

std::string tuning_text(const Tuning& tuning);
// One object, on one line.
std::string tuning_json(const Tuning& tuning);

}  // namespace pdjob::launcher
