// LauncherConfig: the section `launcher` of a job file: how processes are started, watched and
// stopped. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"
#include "common/time.h"
#include "launcher/plan/scaling_config.h"
#include "net/tls/server_tls.h"

namespace pdjob::launcher {

struct RestartConfig {
  Duration backoff_min = std::chrono::milliseconds(250);
  Duration backoff_max = std::chrono::seconds(30);
  Duration healthy_after = std::chrono::seconds(60);
  uint32_t attempts = 4;
};

struct LauncherConfig {
  std::string admin = "127.0.0.1:0";
  std::string admin_key_file;       // Beyond loopback.
  net::CertificateFiles admin_tls;  // The same.
  std::string control_host;         // Processes reach the launcher there.
  Duration start_timeout = std::chrono::minutes(5);
  Duration stop_timeout = std::chrono::seconds(30);
  Duration drain_timeout = std::chrono::minutes(10);
  Duration heartbeat_timeout = std::chrono::seconds(3);
  Duration hang_timeout = std::chrono::seconds(15);
  Duration progress_timeout = std::chrono::minutes(2);
  Duration orphan_timeout{};
  Duration keep{};
  RestartConfig restart;
  StragglerConfig stragglers;
  bool replace_failing = true;  // Workers of pairs that go on failing.
  std::string state_dir;        // Absolute.
  std::string log_dir;          // Empty: `logs` in the job's folder in state_dir.

  // Only this machine reaches `admin`.
  bool admin_is_local() const;
  // Processes may outlive the launcher.
  bool lasts() const { return orphan_timeout > Duration::zero() || keep > Duration::zero(); }
};

// Declares the keys of `launcher`.
void read(ConfigReader& in, LauncherConfig& config);
// Declares its key `state_dir`.
void read_state_dir(ConfigReader& in, std::string& state_dir);

}  // namespace pdjob::launcher
