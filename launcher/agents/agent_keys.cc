#include "launcher/agents/agent_keys.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "common/crypto/job_keys.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kLineBytesMax = 512;

}  // namespace

AgentKeys AgentKeys::of(const std::string& cluster_key) {
  const RootKey root = RootKey::of(cluster_key);
  return {.launcher = net::curve_keys_of(root.derive("agents", "launcher")),
          .agent = net::curve_keys_of(root.derive("agents", "agent"))};
}

Status make_key_file(const std::string& path) {
  const std::string line = RootKey::make().derive("cluster key") + "\n";
  const net::Fd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return system_error("cannot make the key file " + path, ErrorCode::kInvalidArgument);
  }
  if (write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const std::string why = std::strerror(errno);
    unlink(path.c_str());
    return Error{ErrorCode::kUnavailable, "cannot write the key file " + path + ": " + why};
  }
  return ok();
}

// Byte by byte: what follows the line is not ours to read.
Result<std::string> read_key_line(int fd) {
  std::string key;
  char next = 0;
  ssize_t got = 0;
  while (key.size() <= kLineBytesMax && (got = ::read(fd, &next, 1)) == 1 && next != '\n') {
    key.push_back(next);
  }
  if (got != 1 || !is_key(key)) {
    return Error{ErrorCode::kInvalidArgument,
                 "--key-fd: the descriptor must give one line of 16 to 512 printable characters "
                 "without spaces"};
  }
  return key;
}

}  // namespace pdjob::launcher
