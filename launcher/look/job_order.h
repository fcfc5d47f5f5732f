// Orders of a command to the launcher of a running job.
#pragma once

#include <string>

#include "common/result.h"
#include "launcher/look/ask.h"

namespace pdjob::launcher {

// The launcher, and the key that its owner shows. kNotFound: no such job runs.
Result<AskedProcess> admin_of(const std::string& state_dir, const std::string& job);

// Returns the body of the answer. kInvalidArgument: the order is wrong. kOverloaded: it cannot be
// done now, and nothing has changed. The message is the launcher's.
Result<std::string> order_job(const AskedProcess& admin, const Order& order);

// The exit code of a command after such an error (common/exit_code.h).
int exit_code_of_order(const Error& error);

}  // namespace pdjob::launcher
