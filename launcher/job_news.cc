#include "launcher/job_news.h"

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

std::string why_away(const Process& process, Instant now) {
  if (process.state == ProcessState::kHung) {
    return " does not answer: it gets no requests, and is replaced unless it recovers\n";
  }
  if (process.state == ProcessState::kWaiting) {
    return " ended: " + process.last_exit + "; no node has a place for it\n";
  }
  const std::string again = process.state == ProcessState::kBackoff && process.deadline > now
                                ? "it starts again in " + seconds_text(process.deadline - now)
                                : "it starts again";
  return " died: " + process.last_exit + "; " + again + '\n';
}

}  // namespace

std::string JobNews::look(const Job& job, Instant now) {
  if (job.state() != JobState::kReady) {
    return "";
  }
  std::string lines;
  std::map<std::string, bool> away;
  for (const Process& process : job.processes()) {
    const bool was_away = away_[process.name];
    const bool lost =
        process.state == ProcessState::kHung || process.state == ProcessState::kBackoff ||
        process.state == ProcessState::kStarting || process.state == ProcessState::kWaiting;
    bool& is_away = away[process.name];
    is_away = was_away;
    if (!was_away && lost) {
      // One that was added, or changes its role, has not died.
      lines += process.last_exit.empty() ? "" : process.name + why_away(process, now);
      is_away = !process.last_exit.empty();
    } else if (was_away && process.state == ProcessState::kReady) {
      lines += process.name + " serves again\n";
      is_away = false;
    }
  }
  away_ = std::move(away);
  return lines;
}

}  // namespace pdjob::launcher
