#include "common/log.h"

#include <memory>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace pdjob::log {
namespace {

// A longer message is its sender's mistake; it is cut here.
constexpr size_t kMessageBytesMax = 8192;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kNothing:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

std::unique_ptr<spdlog::logger> make_logger(const std::string& process_name, Level level) {
  auto logger = std::make_unique<spdlog::logger>(process_name,
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const std::string pattern =
      process_name.empty() ? "%Y-%m-%dT%H:%M:%S.%eZ %l %v" : "%Y-%m-%dT%H:%M:%S.%eZ %l %n %v";
  logger->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
  logger->set_level(to_spdlog(level));
  return logger;
}

// Never destroyed: a helper thread may log while the process exits.
std::unique_ptr<spdlog::logger>& logger() {
  static auto& current =
      *new std::unique_ptr<spdlog::logger>(make_logger(std::string(), Level::kInfo));
  return current;
}

// Keeps one event on one line, whatever a peer put into its message.
std::string one_line(std::string_view message) {
  std::string line(message.substr(0, kMessageBytesMax));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = ' ';
    }
  }
  return line;
}

void write(Level level, std::string_view message) {
  spdlog::logger& target = *logger();
  if (target.should_log(to_spdlog(level))) {
    target.log(to_spdlog(level), one_line(message));
  }
}

}  // namespace

void start(const std::string& process_name, Level level) {
  logger() = make_logger(process_name, level);
}

void debug(std::string_view message) { write(Level::kDebug, message); }
void info(std::string_view message) { write(Level::kInfo, message); }
void warn(std::string_view message) { write(Level::kWarn, message); }
void error(std::string_view message) { write(Level::kError, message); }

}  // namespace pdjob::log
