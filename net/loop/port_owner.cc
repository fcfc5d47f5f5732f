#include "net/loop/port_owner.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "common/parse_number.h"

namespace pdjob::net {
namespace {

// The sockets that listen on the port, as /proc/PID/fd shows them. Format: proc(5), /proc/net/tcp.
std::set<std::string> listeners_on(uint16_t port) {
  constexpr std::string_view kListening = "0A";
  std::set<std::string> sockets;
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);  // The head.
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      const std::string_view digits = std::string_view(local).substr(local.rfind(':') + 1);
      uint16_t found = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), found, 16);
      if (state == kListening && found == port) {
        sockets.insert("socket:[" + inode + "]");
      }
    }
  }
  return sockets;
}

bool has_any(const std::filesystem::path& process, const std::set<std::string>& sockets) {
  std::error_code failed;
  for (std::filesystem::directory_iterator fd(process / "fd", failed), end; !failed && fd != end;
       fd.increment(failed)) {
    std::error_code ignored;
    if (sockets.contains(std::filesystem::read_symlink(fd->path(), ignored))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<PortOwner> port_owner(uint16_t port) {
  const std::set<std::string> sockets = listeners_on(port);
  std::error_code failed;
  for (std::filesystem::directory_iterator process("/proc", failed), end;
       !sockets.empty() && !failed && process != end; process.increment(failed)) {
    const auto pid = parse_number<int>(process->path().filename().native());
    if (pid && has_any(process->path(), sockets)) {
      PortOwner owner{.pid = *pid};
      std::getline(std::ifstream(process->path() / "comm") >> std::ws, owner.name);
      return owner;
    }
  }
  return std::nullopt;
}

}  // namespace pdjob::net
