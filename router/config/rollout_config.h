// The section `rollout` of a job file: weights that a trainer changes while the job runs. Value.
#pragma once

#include <string>

#include "common/config/config_reader.h"
#include "common/time.h"

namespace pdjob::router {

// Where routers take a trainer's orders.
enum class ControlPlace {
  kOwnAddress,   // `listen`.
  kSameAddress,  // Beside the API, for trainers that know one address.
};

struct RolloutConfig {
  std::string weights_dir;  // On the workers' nodes.
  ControlPlace control = ControlPlace::kOwnAddress;
  std::string listen = "127.0.0.1:8001";
  std::string key_file;  // Empty: the launcher makes a key.
  bool open = false;     // Orders need no key.
  Duration prepare_timeout = std::chrono::minutes(10);
  Duration quiesce_timeout = std::chrono::minutes(10);
  Duration apply_timeout = std::chrono::minutes(5);
};

// The first version of the weights: those of the job file.
inline constexpr const char* kFirstVersion = "default";

// Declares the keys of `rollout`.
void read(ConfigReader& in, RolloutConfig& config);

}  // namespace pdjob::router
