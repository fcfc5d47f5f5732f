#include "engine/grammar/library_log.h"

#include <string>

#include <support/logging.h>

namespace pdjob::engine {
namespace {

thread_local size_t warnings = 0;

}  // namespace

size_t library_warnings() { return warnings; }

}  // namespace pdjob::engine

// XGrammar was built to call these instead of printing (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  throw LogFatalError(file, lineno, message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int /*level*/,
                    const std::string& /*message*/) {
  ++pdjob::engine::warnings;
}

}  // namespace xgrammar
