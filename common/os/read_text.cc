#include "common/os/read_text.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace pdjob {

std::string read_text(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return "";
  }
  std::string text;
  constexpr size_t kPiece = 16384;
  ssize_t got = 1;
  while (got != 0 && text.size() < kReadTextMax) {
    const size_t before = text.size();
    text.resize(std::min(before + kPiece, kReadTextMax));
    got = ::read(fd, text.data() + before, text.size() - before);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) {
      text.clear();
      break;
    }
  }
  ::close(fd);
  return text;
}

}  // namespace pdjob
