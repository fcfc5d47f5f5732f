#include "launcher/compare/tuning.h"

#include <algorithm>
#include <cstdio>

#include "common/check.h"
#include "common/json/json_writer.h"
#include "launcher/compare/report_text.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

// For kOneByOne: some requests of the load, each alone.
constexpr size_t kAloneRequests = 20;
constexpr Duration kAloneApartMin = std::chrono::seconds(20);
// A worker of one role helps the other from so many requests on.
constexpr uint32_t kSpillRequests = 2;
constexpr double kMoreLoad = 1.2;

SimulationAsked alone(const SimulationAsked& asked) {
  SimulationAsked few = asked;
  const size_t every = std::max<size_t>(1, asked.load.size() / kAloneRequests);
  few.load.clear();
  for (size_t i = 0; i < asked.load.size(); i += every) {
    few.load.push_back(asked.load[i]);
    // One that is not done by then misses its SLO.
    few.load.back().at =
        static_cast<int64_t>(few.load.size() - 1) * std::max(kAloneApartMin, 20 * asked.slo.ttft);
  }
  return few;
}

FleetScore score_of(const FleetFigures& figures, const simulation::Slo& slo) {
  return {
      .share = figures.share(),
      .strain = std::max(figures.ttft.p90 / seconds(slo.ttft), figures.itl.p90 / seconds(slo.itl))};
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

class Tuner {
 public:
  Tuner(const TuningAsked& asked, const std::function<void(const std::string&)>& progress)
      : asked_(asked), alone_(alone(asked.simulation)), progress_(progress) {}

  Tuning run() {
    FleetSearch search(asked_.search, [this](const Fleet& fleet, double rate) {
      return score_of(figures(fleet, rate), asked_.simulation.slo);
    });
    Tuning tuning{.source = asked_.simulation.source,
                  .load = asked_.simulation.load_text,
                  .model = asked_.simulation.model_text,
                  .slo = asked_.simulation.slo,
                  .seed = asked_.simulation.seed,
                  .notes = asked_.simulation.job.notes,
                  .share = asked_.search.share,
                  .margin = asked_.search.margin,
                  .workers_asked = asked_.workers,
                  .workers_max = asked_.search.workers_max};
    tuning.answer = asked_.workers > 0 ? search.best_of(asked_.workers) : search.smallest();
    if (const auto& best = tuning.answer.best) {
      tuning.best = figures(best->fleet, 1);
    }
    if (asked_.describes == TuningAsked::Describes::kBest) {
      return tuning;
    }
    if (const auto& best = tuning.answer.best) {
      add_neighbours(best->fleet, tuning.neighbours);
    }
    if (const auto& other = tuning.answer.runner_up) {
      tuning.runner_up = figures(other->fleet, 1);
    }
    return tuning;
  }

 private:
  FleetFigures figures(const Fleet& fleet, double rate) {
    progress_(fleet.name() + (rate == kOneByOne ? ", one request at a time"
                              : rate == 1       ? std::string()
                                                : ", " + number_text(rate) + " times the load"));
    const simulation::TraceJob job = job_of(asked_.simulation.job.job, fleet);
    FleetFigures found =
        rate == kOneByOne ? simulated(alone_, job) : simulated(asked_.simulation, job, rate);
    found.name = fleet.name();
    return found;
  }

  void add_neighbours(const Fleet& best, std::vector<Neighbour>& neighbours) {
    for (const auto& [role, count] :
         {std::pair("prefill", &Fleet::prefill), std::pair("decode", &Fleet::decode),
          std::pair("both-role", &Fleet::both)}) {
      if (best.*count > 1) {
        Fleet fewer = best;
        fewer.*count -= 1;
        neighbours.push_back({std::string("one ") + role + " worker less", figures(fewer, 1)});
      }
    }
    neighbours.push_back({"20 % more load", figures(best, kMoreLoad)});
  }

  const TuningAsked& asked_;
  const SimulationAsked alone_;
  const std::function<void(const std::string&)>& progress_;
};

// What the best fleet is better in than the runner-up, which is of the other kind.
std::string comparison_text(const FleetAnswer& answer) {
  const FoundFleet& best = *answer.best;
  const FoundFleet& other = *answer.runner_up;
  const bool split = best.fleet.disaggregated();
  if (const uint32_t fewer = other.fleet.workers() - best.fleet.workers(); fewer > 0) {
    return std::string(split ? "Disaggregation saves " : "Workers of both roles save ") +
           std::to_string(fewer) + " of " + std::to_string(other.fleet.workers()) + " workers.";
  }
  return "Disaggregated or not, " + std::to_string(best.fleet.workers()) + " are enough. " +
         (split ? "Disaggregated" : "With both roles") +
         (best.score.share > other.score.share ? ", more requests are within the SLO."
                                               : ", requests are further from their limits.");
}

}  // namespace

simulation::TraceJob job_of(const simulation::TraceJob& job, const Fleet& fleet) {
  simulation::TraceJob made = fleet.disaggregated() ? job : colocated(job, fleet.settings.chunk);
  made.prefill = fleet.prefill;
  made.decode = fleet.decode;
  made.both = fleet.both;
  made.launched = nullptr;
  if (fleet.settings.sequences > 0) {
    made.engine.sequences = fleet.settings.sequences;
  }
  if (fleet.settings.spills) {
    made.router.bypass_busy_requests = kSpillRequests;
    made.router.decode_prefills = router::DecodePrefills::kWaiting;
  }
  return made;
}

std::vector<std::string> fleet_settings(const Fleet& fleet) {
  std::vector<std::string> settings{"prefill.workers=" + std::to_string(fleet.prefill),
                                    "decode.workers=" + std::to_string(fleet.decode + fleet.both)};
  if (fleet.settings.chunk > 0) {
    settings.push_back("decode.local_chunk_tokens=" + std::to_string(fleet.settings.chunk));
  }
  if (fleet.settings.sequences > 0) {
    settings.push_back("decode.engine.sequences=" + std::to_string(fleet.settings.sequences));
  }
  if (fleet.settings.spills) {
    settings.push_back("router.bypass_busy_requests=" + std::to_string(kSpillRequests));
    settings.emplace_back("router.decode_prefills=waiting");
  }
  return settings;
}

FleetSearchOptions search_options(const simulation::TraceJob& job) {
  FleetSearchOptions options{.chunks = chunks_to_try(job), .sequences = {}};
  const uint32_t own = job.engine.sequences;
  for (const uint32_t sequences : {own / 2, own * 2}) {
    if (sequences > 0 && sequences <= job.engine.batch_tokens) {
      options.sequences.push_back(sequences);
    }
  }
  return options;
}

Tuning tune(const TuningAsked& asked, const std::function<void(const std::string&)>& progress) {
  PDJOB_CHECK(!asked.simulation.load.empty());
  return Tuner(asked, progress).run();
}

std::string Tuning::headline() const {
  const std::string limits =
      "TTFT " + time_text(seconds(slo.ttft)) + ", ITL " + time_text(seconds(slo.itl));
  const std::string wanted =
      percent_text(share) + " within " + limits + " at " + number_text(margin) + " times the load";
  if (!answer.possible) {
    return "No number of workers is enough: even one at a time, only " +
           percent_text(answer.alone.share) + " of the requests are within " + limits +
           ". Allow more time, or use faster workers.";
  }
  if (!answer.best) {
    const auto& nearest = answer.nearest;
    return "No fleet of up to " + std::to_string(workers_max) + " workers has " + wanted +
           (nearest ? ". The nearest, " + nearest->fleet.name() + ", has " +
                          percent_text(nearest->score.share)
                    : "") +
           ".";
  }
  const std::string found = answer.best->fleet.name();
  if (workers_asked > 0) {
    return "Of " + std::to_string(workers_asked) + " workers, " + found +
           " serve most: " + percent_text(best->share()) + " of the requests are within " + limits +
           ".";
  }
  return "Enough: " + found + ". " + percent_text(best->share()) + " of the requests are within " +
         limits + ", and " + percent_text(answer.best->score.share) + " at " + number_text(margin) +
         " times the load.";
}

std::string tuning_text(const Tuning& tuning) {
  std::string text = tuning.headline() + "\n";
  const FleetAnswer& answer = tuning.answer;
  if (answer.best && answer.runner_up && tuning.workers_asked == 0) {
    text += comparison_text(answer) + '\n';
  } else if (answer.best && tuning.workers_asked == 0) {
    text +=
        std::string("No fleet of up to ") + std::to_string(tuning.workers_max) +
        (answer.best->fleet.disaggregated() ? " workers of both roles" : " disaggregated workers") +
        " is enough.\n";
  }
  text += "\njob    " + tuning.source + "\nload   " + tuning.load + "\nmodel  " + tuning.model +
          "\nseed   " + std::to_string(tuning.seed) + "; " + std::to_string(answer.simulated) +
          " fleets were simulated\n\n";
  std::vector<const FleetFigures*> fleets;
  for (const auto* figures : {&tuning.best, &tuning.runner_up}) {
    if (*figures) {
      fleets.push_back(&**figures);
    }
  }
  if (!fleets.empty()) {
    text += format_table(report_rows(fleets)) + "\n";
  }
  for (const Neighbour& each : tuning.neighbours) {
    text += "With " + each.what + ": " + percent_text(each.figures.share()) +
            " within the SLO, TTFT p90 " + time_text(each.figures.ttft.p90) + ", ITL p90 " +
            time_text(each.figures.itl.p90) + ".\n";
  }
  for (const std::string& note : tuning.notes) {
    text += note + '\n';
  }
  if (answer.best) {
    text += "\nStart it:  pdjob --config " + tuning.source;
    for (const std::string& setting : fleet_settings(answer.best->fleet)) {
      text += " --set " + setting;
    }
    text += '\n';
  }
  return text;
}

std::string tuning_json(const Tuning& tuning) {
  std::string text;
  JsonWriter json(text);
  const auto found = [&](const char* key, const std::optional<FoundFleet>& fleet,
                         const std::optional<FleetFigures>& figures) {
    if (!fleet) {
      return;
    }
    json.key(key).begin_object();
    json.key("prefill").integer(fleet->fleet.prefill);
    json.key("decode").integer(fleet->fleet.decode);
    json.key("both").integer(fleet->fleet.both);
    json.key("settings").begin_array();
    for (const std::string& setting : fleet_settings(fleet->fleet)) {
      json.string(setting);
    }
    json.end_array();
    json.key("share_with_margin").number(fleet->score.share);
    if (figures) {
      json.key("figures");
      write_figures(json, *figures);
    }
    json.end_object();
  };
  json.begin_object();
  json.key("headline").string(tuning.headline());
  json.key("job_file").string(tuning.source);
  json.key("load").string(tuning.load);
  json.key("model").string(tuning.model);
  json.key("seed").integer(tuning.seed);
  json.key("share").number(tuning.share);
  json.key("margin").number(tuning.margin);
  json.key("possible").boolean(tuning.answer.possible);
  json.key("fleets_simulated").integer(tuning.answer.simulated);
  found("best", tuning.answer.best, tuning.best);
  found("runner_up", tuning.answer.runner_up, tuning.runner_up);
  if (!tuning.answer.best) {
    found("nearest", tuning.answer.nearest, std::nullopt);
  }
  json.key("neighbours").begin_array();
  for (const Neighbour& each : tuning.neighbours) {
    json.begin_object();
    json.key("what").string(each.what);
    json.key("figures");
    write_figures(json, each.figures);
    json.end_object();
  }
  json.end_array();
  json.key("notes").begin_array();
  for (const std::string& note : tuning.notes) {
    json.string(note);
  }
  json.end_array();
  json.end_object();
  return text + '\n';
}

}  // namespace pdjob::launcher
