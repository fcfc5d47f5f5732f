#include "launcher/job_news.h"

#include <chrono>
#include <cstdio>

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
  const std::string again = process.state == ProcessState::kBackoff && process.deadline > now
                                ? "it starts again in " + seconds_text(process.deadline - now)
                                : "it starts again";
  return " died: " + process.last_exit + "; " + again + '\n';
}

}  // namespace

std::string JobNews::look(const Job& job, Instant now) {
  const std::vector<Process>& processes = job.processes();
  if (job.state() != JobState::kReady) {
    return "";
  }
  away_.resize(processes.size());
  std::string lines;
  for (size_t i = 0; i < processes.size(); ++i) {
    const Process& process = processes[i];
    const bool lost = process.state == ProcessState::kHung ||
                      process.state == ProcessState::kBackoff ||
                      process.state == ProcessState::kStarting;
    if (!away_[i] && lost) {
      lines += process.name + why_away(process, now);
      away_[i] = true;
    } else if (away_[i] && process.state == ProcessState::kReady) {
      lines += process.name + " serves again\n";
      away_[i] = false;
    }
  }
  return lines;
}

}  // namespace pdjob::launcher
