#include "worker/foreign/weights_dir.h"

#include <utility>

namespace pdjob::worker {
namespace {

namespace fs = std::filesystem;

Error not_there(std::string why) { return {ErrorCode::kInvalidArgument, std::move(why)}; }

}  // namespace

Result<fs::path> find_below(const std::string& weights_dir, const fs::path& path,
                            const std::string& shown) {
  if (weights_dir.empty()) {
    return not_there("the job has no rollout.weights_dir");
  }
  std::error_code failed;
  const fs::path root = fs::canonical(weights_dir, failed);
  if (failed) {
    return not_there("rollout.weights_dir " + weights_dir + ": " + failed.message());
  }
  fs::path found = fs::canonical(root / path, failed);
  if (failed) {
    return not_there(shown + ": " + failed.message());
  }
  if (!found.string().starts_with(root.string() + "/")) {
    return not_there(shown + " is not below rollout.weights_dir, " + weights_dir);
  }
  return found;
}

}  // namespace pdjob::worker
