#include "worker/foreign/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "common/crypto/sha256.h"
#include "common/files/small_file.h"
#include "common/limits.h"
#include "engine/model_facts.h"
#include "openai/json/json_edit.h"
#include "worker/foreign/weights_dir.h"

namespace pdjob::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesMax = 4096;  // Entries of a folder.
constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr const char* kTensors = ".safetensors";
constexpr const char* kConfigName = "config.json";
constexpr auto kShape = std::to_array<std::string_view>(
    {"architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
     "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "num_local_experts"});

Error refused(std::string why) { return {ErrorCode::kInvalidArgument, std::move(why)}; }

// Sorted.
Result<std::vector<fs::path>> files_of(const std::string& folder) {
  std::vector<fs::path> files;
  size_t entries = 0;
  size_t tensors = 0;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (++entries > kFilesMax) {
      return refused(folder + " has too many entries");
    }
    const bool holds_tensors = entry->path().extension() == kTensors;
    tensors += holds_tensors ? 1 : 0;
    if (holds_tensors || entry->path().filename() == kConfigName) {
      files.push_back(entry->path());
    }
  }
  if (failed) {
    return refused("cannot read the folder " + folder + ": " + failed.message());
  }
  if (tensors == 0) {
    return refused(folder + " holds no .safetensors file");
  }
  std::ranges::sort(files);
  return files;
}

Result<std::string> stamp_of_files(const std::vector<fs::path>& files) {
  std::string stamp;
  for (const fs::path& file : files) {
    std::error_code failed;
    const auto size = fs::file_size(file, failed);
    const auto written = failed ? fs::file_time_type{} : fs::last_write_time(file, failed);
    if (failed) {
      return Error{ErrorCode::kCorrupt, file.string() + ": " + failed.message()};
    }
    stamp += file.filename().string() + " " + std::to_string(size) + " " +
             std::to_string(written.time_since_epoch().count()) + "\n";
  }
  return stamp;
}

}  // namespace

Result<std::string> find_checkpoint(const std::string& weights_dir, const std::string& path) {
  PDJOB_TRY(const fs::path found, find_below(weights_dir, path, path));
  std::error_code failed;
  if (!fs::is_directory(found, failed)) {
    return refused(path + " is no folder: this engine takes a folder of safetensors");
  }
  if (found.string().size() > limits::kControlStringBytesMax) {
    return refused(path + " is too long");
  }
  return found.string();
}

Result<Checkpoint> read_checkpoint(const std::string& folder) {
  PDJOB_TRY(const std::vector<fs::path> files, files_of(folder));
  Checkpoint checkpoint{.folder = folder};
  PDJOB_TRY(checkpoint.stamp, stamp_of_files(files));
  std::string digests;
  for (const fs::path& file : files) {
    PDJOB_TRY(const std::string digest, engine::file_digest(file.string()));
    std::error_code failed;
    digests += file.filename().string() + " " + digest + "\n";
    checkpoint.bytes += fs::file_size(file, failed);
    if (file.filename() == kConfigName) {
      PDJOB_TRY(checkpoint.config, read_small_file(file.string(), kConfigBytesMax));
    }
  }
  PDJOB_TRY(const std::string after, stamp_of_files(files));
  if (after != checkpoint.stamp) {
    return Error{ErrorCode::kCorrupt, folder + " changed while it was read"};
  }
  checkpoint.digest = sha256_of(digests);
  return checkpoint;
}

Result<std::string> stamp_of_checkpoint(const std::string& folder) {
  PDJOB_TRY(const std::vector<fs::path> files, files_of(folder));
  return stamp_of_files(files);
}

Status same_shape(const std::string& now, const std::string& next) {
  if (now.empty() || next.empty()) {
    return ok();
  }
  const auto has = openai::JsonObject::scan(now, kShape);
  if (!has) {
    return ok();
  }
  const auto gets = openai::JsonObject::scan(next, kShape);
  if (!gets) {
    return refused("its config.json is no JSON object");
  }
  for (const std::string_view name : kShape) {
    const std::string_view must = has->value(name);
    const std::string_view is = gets->value(name);
    if (!must.empty() && !is.empty() && must != is) {
      return refused("these are weights of another model: " + std::string(name) + " is " +
                     std::string(is) + ", must be " + std::string(must));
    }
  }
  return ok();
}

}  // namespace pdjob::worker
