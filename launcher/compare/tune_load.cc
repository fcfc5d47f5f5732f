#include "launcher/compare/tune_load.h"

#include <cstdio>

#include <unistd.h>

#include "common/exit_code.h"
#include "common/log.h"
#include "launcher/compare/tuning.h"

namespace pdjob::launcher {
namespace {

int refuse(const std::string& message) {
  std::fprintf(stderr, "pdjob tune: %s%s", message.c_str(), message.ends_with('\n') ? "" : "\n");
  return kExitUsage;
}

// On a terminal, one line that changes; in a pipe, nothing.
class Progress {
 public:
  void operator()(const std::string& fleet) {
    if (is_terminal_) {
      std::fprintf(stderr, "\r\033[Ksimulation %zu: %s", ++count_, fleet.c_str());
    }
  }
  void end() const {
    if (count_ > 0) {
      std::fputs("\r\033[K", stderr);
    }
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  size_t count_ = 0;
};

}  // namespace

int tune_load(const SimulationOptions& options, const TuneLoadFlags& flags, const Places& places) {
  log::start("tune", log::Level::kNothing);
  const auto config = options.job(places);
  if (!config) {
    return kExitUsage;
  }
  auto simulation = simulation_asked(*config, options.flags);
  if (!simulation) {
    return refuse(simulation.error().message);
  }
  TuningAsked asked{.simulation = *std::move(simulation), .workers = flags.workers};
  asked.search = search_options(asked.simulation.job.job);
  asked.search.workers_max = flags.workers_max;
  asked.search.share = flags.percent / 100;
  asked.search.margin = flags.margin;
  Progress progress;
  const Tuning tuning = tune(asked, [&](const std::string& fleet) { progress(fleet); });
  progress.end();
  if (!flags.out.empty() && tuning.answer.best) {
    SimulationOptions tuned = options;
    for (const std::string& setting : fleet_settings(tuning.answer.best->fleet)) {
      tuned.settings.push_back(setting);
    }
    const auto file = tuned.job(places);
    if (!file) {
      return kExitUsage;  // It was said.
    }
    if (const Status written = write_output("--out", flags.out, file->text); !written) {
      return refuse(written.error().message);
    }
  }
  std::fputs((options.flags.json ? tuning_json(tuning) : tuning_text(tuning)).c_str(), stdout);
  return tuning.answer.best ? kExitOk : kExitFailed;
}

}  // namespace pdjob::launcher
