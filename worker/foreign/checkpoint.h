// Checkpoints for engines of other makes: a folder of safetensors with its config.json. It touches
// the file system.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"

namespace pdjob::worker {

struct Checkpoint {
  std::string folder;  // Without symbolic links.
  std::string digest;  // Of config.json, all safetensors and their names.
  std::string stamp;   // Changes when one of these files is written.
  std::string config;  // The text of config.json; empty: there is none.
  uint64_t bytes = 0;
};

// The folder that `path` names below `weights_dir`. kInvalidArgument: it is none.
Result<std::string> find_checkpoint(const std::string& weights_dir, const std::string& path);

// Reads all of its files.
Result<Checkpoint> read_checkpoint(const std::string& folder);
// Checkpoint::stamp, without reading them.
Result<std::string> stamp_of_checkpoint(const std::string& folder);

// kInvalidArgument: they are of different models, by their config.json. Only what both tell
// is compared.
Status same_shape(const std::string& now, const std::string& next);

}  // namespace pdjob::worker
