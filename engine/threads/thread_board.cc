#include "engine/threads/thread_board.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/os/machine_share.h"
#include "engine/threads/step_threads.h"

namespace pdjob::engine {
namespace {

constexpr uint32_t kPlaces = 256;  // Engines of one board; further ones keep to their own threads.
constexpr uint32_t kThreadsMax = 512;  // What another engine may claim for one step.

Error failed(const char* call) {
  return {ErrorCode::kUnsupported, std::string("shared threads: ") + call + ": " + strerror(errno)};
}

// Other processes write these numbers, so they are checked when they are read.
struct alignas(64) Place {
  std::atomic<uint32_t> own;  // 0: the place was never taken, or was left.
  std::atomic<uint32_t> computing;
  std::atomic<int64_t> idle_since;  // Nanoseconds of the machine's monotonic clock; 0: no step yet.
};
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

// Byte `place` of the file stands for the place.
struct flock lock_of(uint32_t place) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place);
  lock.l_len = 1;
  return lock;
}

bool lives(int fd, uint32_t place) {
  struct flock lock = lock_of(place);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

struct ThreadBoard::Board {
  std::array<Place, kPlaces> places;
  uint32_t cores;  // Written once.
};

Result<int> ThreadBoard::create(uint32_t cores) {
  const int fd = memfd_create("pdjob-threads", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return failed("memfd_create");
  }
  if (ftruncate(fd, sizeof(Board)) != 0 ||
      pwrite(fd, &cores, sizeof cores, offsetof(Board, cores)) != sizeof cores ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const Error error = failed("making the memory");
    close(fd);
    return error;
  }
  return fd;
}

Result<ThreadBoard> ThreadBoard::join(int fd, uint32_t own) {
  ThreadBoard joined;
  joined.fd_ = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  const Error reopened = failed("opening the memory");
  close(fd);
  if (joined.fd_ < 0) {
    return reopened;
  }
  if (lseek(joined.fd_, 0, SEEK_END) != static_cast<off_t>(sizeof(Board))) {
    return Error{ErrorCode::kUnsupported, "shared threads: the memory has another size"};
  }
  void* const mapped =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, joined.fd_, 0);
  if (mapped == MAP_FAILED) {
    return failed("mmap");
  }
  auto* const board = static_cast<Board*>(mapped);
  for (uint32_t place = 0; place < board->places.size(); ++place) {
    struct flock lock = lock_of(place);
    if (fcntl(joined.fd_, F_OFD_SETLK, &lock) == 0) {
      Place& mine = board->places[place];  // It may have a dead engine's numbers.
      mine.computing = 0;
      mine.idle_since = 0;
      mine.own = own;
      joined.board_ = board;
      joined.place_ = place;
      joined.own_ = own;
      joined.cores_ = std::min(machine_share().cores(), board->cores);
      return joined;
    }
    if (errno != EAGAIN && errno != EACCES) {
      break;
    }
  }
  const Error error = failed("taking a place");
  munmap(mapped, sizeof(Board));
  return error;
}

ThreadBoard::~ThreadBoard() {
  if (board_ != nullptr) {
    board_->places[place_].own = 0;
    munmap(board_, sizeof(Board));
  }
  if (fd_ >= 0) {
    close(fd_);  // Drops the lock.
  }
}

uint32_t ThreadBoard::begin_step(Instant now, Borrow borrow) {
  // Its own threads are marked first, so that an engine that begins at the same moment sees them.
  Place& mine = board_->places[place_];
  mine.computing = own_;
  if (borrow == Borrow::kNo) {
    return own_;
  }
  std::array<EngineUse, kPlaces> others;
  size_t count = 0;
  for (uint32_t place = 0; place < board_->places.size(); ++place) {
    const Place& other = board_->places[place];
    const uint32_t own = other.own;
    if (own == 0 || place == place_ || !lives(fd_, place)) {
      continue;
    }
    others[count++] = {.own = std::min<uint32_t>(own, kThreadsMax),
                       .computing = std::min<uint32_t>(other.computing, kThreadsMax),
                       .idle_since = Instant(Duration(other.idle_since))};
  }
  const uint32_t threads = threads_of_step(own_, {others.data(), count}, cores_, now);
  mine.computing = threads;
  return threads;
}

void ThreadBoard::end_step(Instant now) {
  Place& mine = board_->places[place_];
  mine.idle_since = now.time_since_epoch().count();
  mine.computing = 0;
}

}  // namespace pdjob::engine
