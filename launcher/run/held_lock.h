// Locks of files and folders (flock) that processes hold while they live: who holds one, and how
// such a process is ended. A process id alone proves nothing, because it may be another process's
// by now; so the holder must have the file open.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "common/time.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// False also if the file does not exist. True also if that cannot be found out now, because this
// process or the system has no descriptor left.
bool is_locked(const std::string& path);

// The process, if it has the file open. kNotFound: as for end_holder().
Result<net::Fd> open_holder(int64_t pid, const std::string& path);

// Sends the signal to a process that has the file open, and waits for its end. kNotFound: this
// process does not have it open, or is not of this user. kTimeout: it lives on.
Status end_holder(int64_t pid, const std::string& path, int signal, Duration patience);

}  // namespace pdjob::launcher
