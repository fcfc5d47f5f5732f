#include "batch/input/row_files.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kOpenMax = 64;

}  // namespace

uint64_t row_digest(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Status RowFiles::read(uint32_t file, uint64_t offset, uint64_t length, uint64_t digest,
                      std::string& text) {
  const std::string& path = paths_[file];
  if (open_.size() >= kOpenMax && !open_.contains(file)) {
    open_.erase(open_.begin());
  }
  net::Fd& fd = open_[file];
  if (!fd.valid()) {
    fd = net::Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  text.reserve(length + openai::JsonObject::kSlack);
  text.resize(length);
  size_t got = 0;
  while (fd.valid() && got < length) {
    const ssize_t more =
        pread(fd.get(), text.data() + got, length - got, static_cast<off_t>(offset + got));
    if (more < 0 && errno != EINTR) {
      return system_error("cannot read " + path);
    }
    if (more == 0) {
      break;
    }
    got += static_cast<size_t>(more > 0 ? more : 0);
  }
  if (!fd.valid() || got < length || row_digest(text) != digest) {
    return Error{ErrorCode::kCorrupt, path + " is not what it was when the batch began: put the " +
                                          "old file back, or begin anew with --restart"};
  }
  return ok();
}

}  // namespace pdjob::batch
