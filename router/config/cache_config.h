// The `router.cache` section. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"
#include "common/limits.h"
#include "common/time.h"

namespace pdjob::router {

struct SimilarityConfig {
  std::string url;  // An engine with /v1/embeddings. Empty: only equal requests match.
  std::string model;
  std::string ca_file;      // Of authorities that are trusted; empty: the system's.
  double threshold = 0.95;  // Cosine.
  uint32_t vectors_max = 10'000;
  Duration timeout = std::chrono::milliseconds(200);
};

struct CacheConfig {
  uint64_t bytes_max = 0;  // 0: no cache.
  uint64_t reply_bytes_max = limits::kMiB;
  Duration ttl = std::chrono::minutes(10);
  SimilarityConfig similarity;
};

void read(ConfigReader& in, CacheConfig& config);

}  // namespace pdjob::router
