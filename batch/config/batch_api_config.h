// The `batch_api` section: OpenAI's Batch API on the job's routers. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"
#include "common/time.h"

namespace pdjob::batch {

struct BatchApiConfig {
  std::string dir;  // Holds files and batches; created if missing. Empty: there is no Batch API.
  uint64_t file_bytes_max = uint64_t{200} << 20;
  uint32_t files_max = 10'000;                   // Of one tenant.
  uint64_t disk_bytes_max = uint64_t{64} << 30;  // Of all files and answers.
  uint64_t tenant_bytes_max = 0;                 // Of one tenant's; 0: no limit of its own.
  uint64_t disk_free_min = uint64_t{256} << 20;  // That the file system keeps.
  uint32_t rows_max = 50'000;                    // In one batch.
  uint32_t batches_max = 100;                    // Of one tenant, that have not ended.
  uint32_t running_max = 4;                      // Whose rows run at the same time.
  uint32_t in_flight_max = 0;                    // Rows of one batch; 0: as many as help.
  Duration window_max = std::chrono::hours(24 * 7);
  Duration keep = std::chrono::hours(24 * 30);

  bool on() const { return !dir.empty(); }
};

void read(ConfigReader& in, BatchApiConfig& config);

}  // namespace pdjob::batch
