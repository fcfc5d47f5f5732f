#include "launcher/run/lease.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/run/patiently.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kOtherWriter = std::chrono::seconds(1);

// Every lease has the same length, so that each covers the one before.
std::string text_of(const Lease& lease) {
  std::array<char, 96> text{};
  const int size =
      std::snprintf(text.data(), text.size(), "%20llu %20lld %20lld\n",
                    static_cast<unsigned long long>(lease.launcher),
                    static_cast<long long>(lease.pid), static_cast<long long>(lease.renewed_ms));
  return {text.data(), static_cast<size_t>(size)};
}

std::optional<Lease> parse(std::istream& in) {
  Lease lease;
  return in >> lease.launcher >> lease.pid >> lease.renewed_ms ? std::optional(lease)
                                                               : std::nullopt;
}

std::optional<Lease> lease_in(int file) {
  std::array<char, 256> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  std::istringstream in(size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "");
  return parse(in);
}

// The file of that name, locked. kOverloaded: another process has it for a moment, or another file
// has taken its place meanwhile.
Result<net::Fd> lock(const std::string& path) {
  net::Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return system_error("cannot open " + path);
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool busy = errno == EWOULDBLOCK;
    Error error = system_error("cannot lock " + path);
    error.code = busy ? ErrorCode::kOverloaded : error.code;
    return error;
  }
  struct stat opened{};
  struct stat found{};
  if (fstat(file.get(), &opened) != 0 || stat(path.c_str(), &found) != 0 ||
      opened.st_ino != found.st_ino || opened.st_dev != found.st_dev) {
    return Error{ErrorCode::kOverloaded, path + " was replaced just now"};
  }
  return file;
}

}  // namespace

std::string lease_path(const std::string& folder) { return folder + "/lease"; }

std::optional<Lease> read_lease(const std::string& folder) {
  std::ifstream file(lease_path(folder));
  return parse(file);
}

Result<Fence> Fence::pass(const std::string& folder, uint64_t launcher, int64_t pid) {
  auto locked =
      patiently(kOtherWriter, [&] { return lock(lease_path(folder)); }, ErrorCode::kOverloaded);
  if (!locked) {
    return Error{ErrorCode::kUnavailable, locked.error().message};
  }
  net::Fd file = *std::move(locked);
  const auto found = lease_in(file.get());
  const bool ours =
      !found || found->launcher < launcher || (found->launcher == launcher && found->pid == pid);
  if (!ours) {
    return Error{ErrorCode::kCancelled, "another launcher of this job, pid " +
                                            std::to_string(found->pid) + ", has taken over"};
  }
  return Fence(std::move(file));
}

Status Fence::renew(const Lease& lease, Durable durable) const {
  const std::string text = text_of(lease);
  if (pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      (durable == Durable::kYes && fdatasync(file_.get()) != 0)) {
    return system_error("cannot write the launcher's lease");
  }
  return ok();
}

}  // namespace pdjob::launcher
