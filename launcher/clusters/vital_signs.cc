#include "launcher/clusters/vital_signs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "common/os/run_delay.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

// The text behind `key`, which stands at the beginning of a line.
std::optional<std::string_view> value_of(std::string_view status, std::string_view key) {
  size_t at = 0;
  while (at < status.size()) {
    const size_t end = std::min(status.find('\n', at), status.size());
    std::string_view line = status.substr(at, end - at);
    if (line.starts_with(key)) {
      line.remove_prefix(key.size());
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      return line;
    }
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<uint64_t> number_of(std::string_view status, std::string_view key) {
  const auto text = value_of(status, key);
  uint64_t number = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

uint64_t microseconds_of(Duration duration) {
  return static_cast<uint64_t>(duration / std::chrono::microseconds(1));
}

void add_threads(int64_t pid, VitalSigns& signs) {
  for (const auto& [thread, times] : core_times(pid)) {
    signs.any_runnable = signs.any_runnable || times.runnable;
    signs.all_ran_us += microseconds_of(times.ran);
    signs.all_waited_us += microseconds_of(times.waited);
    if (thread == pid) {
      signs.ran_us = microseconds_of(times.ran);
      signs.waited_us = microseconds_of(times.waited);
    }
  }
}

}  // namespace

std::optional<VitalSigns> parse_vital_signs(std::string_view status) {
  const auto state = value_of(status, "State:");
  const auto gave_way = number_of(status, "voluntary_ctxt_switches:");
  const auto was_moved = number_of(status, "nonvoluntary_ctxt_switches:");
  if (!state || state->empty() || !gave_way || !was_moved) {
    return std::nullopt;
  }
  const bool stopped = state->front() == 'T' || state->front() == 't';
  return VitalSigns{.asleep = stopped || state->front() == 'S',
                    .stopped = stopped,
                    .runnable = state->front() == 'R',
                    .turns = *gave_way + *was_moved};
}

std::optional<VitalSigns> vital_signs_of(int64_t pid, Instant now) {
  const std::string path = "/proc/" + std::to_string(pid) + "/status";
  const net::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 8192> text{};
  const ssize_t size = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  if (size <= 0) {
    return std::nullopt;
  }
  auto signs = parse_vital_signs(std::string_view(text.data(), static_cast<size_t>(size)));
  if (signs) {
    signs->at_ms = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count());
    add_threads(pid, *signs);
  }
  return signs;
}

std::optional<VitalSigns> vital_signs_with_descendants(int64_t pid, Instant now) {
  auto signs = vital_signs_of(pid, now);
  if (signs) {
    for (const int64_t each : descendants_of(pid)) {
      add_threads(each, *signs);
    }
  }
  return signs;
}

}  // namespace pdjob::launcher
