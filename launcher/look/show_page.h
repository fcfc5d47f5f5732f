// How commands that look at a running job print what they see.
#pragma once

#include <functional>
#include <string>

#include "common/result.h"

namespace pdjob::launcher {

enum class StatusForm { kText, kJson };
enum class ShowMode { kOnce, kWatch };

// Prints the page; with kWatch again and again, once a second, until a signal comes, the page
// fails, or stdout is closed. On a terminal each look at a text replaces the last one. In a pipe an
// empty line follows a text; JSON pages are lines. Returns the exit code (common/exit_code.h):
// kExitFailed if the page fails.
int show_page(StatusForm form, ShowMode mode, const std::function<Result<std::string>()>& page);

}  // namespace pdjob::launcher
