#include "launcher/report/job_news.h"

#include <chrono>
#include <cstdio>
#include <utility>

namespace pdjob::launcher {
namespace {

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string place_text(const Job& job, const Process& process) {
  const std::string lack = job.lack(process.demand);
  return "waits for a node with room" + (lack.empty() ? "" : ": " + lack) + '\n';
}

std::string why_away(const Job& job, const Process& process, Instant now) {
  if (process.state == ProcessState::kHung) {
    return " does not answer: it gets no requests, and is replaced unless it recovers\n";
  }
  if (process.state == ProcessState::kWaiting) {
    return " ended: " + process.last_exit + "; it " + place_text(job, process);
  }
  const std::string again = process.state == ProcessState::kBackoff && process.deadline > now
                                ? "it is tried again in " + seconds_text(process.deadline - now)
                                : "it is tried again";
  return " died: " + process.last_exit + "; " + again + '\n';
}

}  // namespace

std::string JobNews::look(const Job& job, Instant now) {
  if (job.state() != JobState::kReady) {
    return "";
  }
  std::string lines;
  std::map<std::string, Absence> absences;
  for (const Process& process : job.processes()) {
    const Absence before = absences_[process.name];
    const bool waits = process.state == ProcessState::kWaiting;
    const bool lost = process.state == ProcessState::kHung ||
                      process.state == ProcessState::kBackoff ||
                      process.state == ProcessState::kStarting || waits;
    Absence& absence = absences[process.name];
    absence = {.away = before.away, .waits = before.waits && waits};
    if (!before.away && lost) {
      // One that was added, or changes its role, has not died.
      const bool died = !process.last_exit.empty();
      lines += died ? process.name + why_away(job, process, now) : "";
      absence = {.away = died, .waits = died && waits};
    } else if (before.away && process.state == ProcessState::kReady) {
      lines += process.name + " serves again\n";
      absence = {};
    } else if (before.away && waits && !before.waits) {
      lines += process.name + ' ' + place_text(job, process);
      absence.waits = true;
    }
  }
  absences_ = std::move(absences);
  return lines;
}

}  // namespace pdjob::launcher
